"""The zoo's networks once more, in PyTorch's functions, over parameters that are found by name.

A twin is told nothing but wiring, strides and pads: sizes are those of the parameters. It returns one
(logits, classes' axis, weight of the loss) an output.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Heads = list[tuple[Tensor, int, float]]
CONVOLUTIONS = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
DECONVOLUTIONS = {4: F.conv_transpose2d, 5: F.conv_transpose3d}
MAX_POOLS = {4: F.max_pool2d, 5: F.max_pool3d}


class Twin:
    """Parameters and inputs by name, and the layers that read them; `moved` are the moving statistics afterwards."""

    def __init__(self, values: dict[str, Tensor], statistics: dict[str, Tensor], eps: float) -> None:
        self.values, self.statistics, self.eps = values, statistics, eps
        self.moved: dict[str, Tensor] = {}
        self.used: set[str] = set()

    def get(self, name: str) -> Tensor | None:
        """A parameter, or None; noted as used."""
        self.used.add(name)
        return self.values.get(name)

    def need(self, name: str) -> Tensor:
        """A parameter that there must be."""
        found = self.get(name)
        assert found is not None, name
        return found

    def conv(self, x: Tensor, name: str, stride: Any = 1, pad: Any = 0) -> Tensor:
        """Convolution; the groups are what the weight's second axis says."""
        weight = self.need(f"{name}_weight")
        groups = x.shape[1] // weight.shape[1]
        return CONVOLUTIONS[x.dim()](x, weight, self.get(f"{name}_bias"), stride, pad, 1, groups)

    def up(self, x: Tensor, name: str) -> Tensor:
        """Deconvolution with stride 2."""
        return DECONVOLUTIONS[x.dim()](x, self.need(f"{name}_weight"), self.get(f"{name}_bias"), 2)

    def bn(self, x: Tensor, name: str, fixed: bool = False) -> Tensor:
        """Batch normalisation, with gamma as 1 if `fixed`; moving statistics keep nine tenths."""
        for kind, now in (("mean", x.transpose(0, 1).flatten(1).mean(1)),
                          ("var", x.transpose(0, 1).flatten(1).var(1, correction=0))):
            key = f"{name}_moving_{kind}"
            self.moved[key] = 0.9 * self.statistics[key] + 0.1 * now.detach()
        gamma = self.need(f"{name}_gamma")
        return F.batch_norm(x, None, None, None if fixed else gamma, self.need(f"{name}_beta"), True, 0, self.eps)

    def relu(self, x: Tensor) -> Tensor:
        """The positive part."""
        return F.relu(x)

    def unit(self, x: Tensor, name: str, stride: Any = 1, pad: Any = 0) -> Tensor:
        """Convolution, normalisation, ReLU."""
        return self.relu(self.bn(self.conv(x, name, stride, pad), f"{name}_bn"))

    def chain(self, x: Tensor, name: str, *layers: tuple[Any, ...]) -> Tensor:
        """Units one behind another."""
        for k, layer in enumerate(layers, start=1):
            x = self.unit(x, f"{name}_{k}", *layer)
        return x

    def fc(self, x: Tensor, name: str) -> Tensor:
        """A dense layer on the last axis."""
        return F.linear(x, self.need(f"{name}_weight"), self.get(f"{name}_bias"))

    def ln(self, x: Tensor, name: str, eps: float) -> Tensor:
        """Layer normalisation on the last axis."""
        return F.layer_norm(x, x.shape[-1:], self.need(f"{name}_gamma"), self.need(f"{name}_beta"), eps)

    def classify(self, x: Tensor, name: str = "fc") -> Heads:
        """The classifier behind global pooling."""
        return [(self.fc(x.flatten(2).mean(2), name), 1, 1.0)]


def alexnet(t: Twin, x: Tensor, local: bool) -> Heads:
    layers = (((4, 0), (1, 2)) if local else ((4, 2), (1, 2))) + ((1, 1),) * 3
    for k, (stride, pad) in enumerate(layers, start=1):
        x = t.relu(t.conv(x, f"conv{k}", stride, pad))
        if local and k < 3:
            x = F.local_response_norm(x, 5, 1e-4, 0.75, 2.0)
        if k in (1, 2, 5):
            x = F.max_pool2d(x, 3, 2)
    return [(dense_end(t, x), 1, 1.0)]


def dense_end(t: Twin, x: Tensor) -> Tensor:
    return t.fc(t.relu(t.fc(t.relu(t.fc(x.flatten(1), "fc6")), "fc7")), "fc8")


def vgg(t: Twin, x: Tensor, groups: Sequence[int], norm: bool) -> Heads:
    for g, count in enumerate(groups, start=1):
        for k in range(1, count + 1):
            name = f"conv{g}_{k}"
            x = t.unit(x, name, 1, 1) if norm else t.relu(t.conv(x, name, 1, 1))
        x = F.max_pool2d(x, 2)
    return [(dense_end(t, x), 1, 1.0)]


def googlenet(t: Twin, x: Tensor) -> Heads:
    def block(x: Tensor, name: str) -> Tensor:
        return torch.cat([t.unit(x, f"{name}_1x1"), t.chain(x, f"{name}_3x3", (), (1, 1)),
                          t.chain(x, f"{name}_second", (), (1, 1)),
                          t.unit(F.max_pool2d(x, 3, 1, 1), f"{name}_proj")], 1)
    x = F.max_pool2d(t.unit(x, "conv1", 2, 3), 3, 2, ceil_mode=True)
    x = F.max_pool2d(t.unit(t.unit(x, "conv2"), "conv3", 1, 1), 3, 2, ceil_mode=True)
    x = F.max_pool2d(block(block(x, "in3a"), "in3b"), 3, 2, ceil_mode=True)
    for letter in "abcde":
        x = block(x, f"in4{letter}")
    x = F.max_pool2d(x, 2, 2, ceil_mode=True)
    return t.classify(block(block(x, "in5a"), "in5b"))


def inception_bn(t: Twin, x: Tensor) -> Heads:
    x = F.max_pool2d(t.unit(x, "conv1", 2, 3), 3, 2, ceil_mode=True)
    x = F.max_pool2d(t.chain(x, "conv2", (), (1, 1)), 3, 2, ceil_mode=True)
    for name in ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        step = 2 if name in ("3c", "4e") else 1
        pool = F.max_pool2d(x, 3, step, 1) if step == 2 or name == "5b" else F.avg_pool2d(x, 3, 1, 1)
        parts = [] if step == 2 else [t.unit(x, f"in{name}_1x1")]
        parts += [t.chain(x, f"in{name}_3x3", (), (step, 1)), t.chain(x, f"in{name}_double", (), (1, 1), (step, 1)),
                  pool if step == 2 else t.unit(pool, f"in{name}_proj")]
        x = torch.cat(parts, 1)
    return t.classify(x)


ROW, COLUMN, ROW3, COLUMN3 = (1, (0, 3)), (1, (3, 0)), (1, (0, 1)), (1, (1, 0))


def inception_v3(t: Twin, x: Tensor, aux: bool) -> Heads:
    def pooled(x: Tensor, name: str) -> Tensor:
        return t.unit(F.avg_pool2d(x, 3, 1, 1), f"{name}_proj")

    def split(x: Tensor, name: str) -> list[Tensor]:
        return [t.unit(x, f"{name}_row", *ROW3), t.unit(x, f"{name}_column", *COLUMN3)]

    x = F.max_pool2d(t.chain(x, "stem1", (2,), (), (1, 1)), 3, 2)
    x = F.max_pool2d(t.chain(x, "stem2", (), ()), 3, 2)
    for n in ("5b", "5c", "5d"):
        x = torch.cat([t.unit(x, f"{n}_1x1"), t.chain(x, f"{n}_5x5", (), (1, 2)),
                       t.chain(x, f"{n}_3x3", (), (1, 1), (1, 1)), pooled(x, n)], 1)
    x = torch.cat([t.unit(x, "6a_3x3", 2), t.chain(x, "6a_double", (), (1, 1), (2,)), F.max_pool2d(x, 3, 2)], 1)
    for n in ("6b", "6c", "6d", "6e"):
        x = torch.cat([t.unit(x, f"{n}_1x1"), t.chain(x, f"{n}_7x7", (), ROW, COLUMN),
                       t.chain(x, f"{n}_double", (), COLUMN, ROW, COLUMN, ROW), pooled(x, n)], 1)
    side = t.chain(F.avg_pool2d(x, 5, 3), "aux", (), ()) if aux else None
    x = torch.cat([t.chain(x, "7a_3x3", (), (2,)), t.chain(x, "7a_7x7", (), ROW, COLUMN, (2,)),
                   F.max_pool2d(x, 3, 2)], 1)
    for n in ("7b", "7c"):
        x = torch.cat([t.unit(x, f"{n}_1x1"), *split(t.unit(x, f"{n}_3x3"), f"{n}_3x3"),
                       *split(t.chain(x, f"{n}_double", (), (1, 1)), f"{n}_double"), pooled(x, n)], 1)
    return t.classify(x) + ([] if side is None else [(t.fc(side.flatten(2).mean(2), "aux_fc"), 1, 0.4)])


def inception_v4(t: Twin, x: Tensor) -> Heads:
    def pooled(x: Tensor, name: str) -> Tensor:
        return t.unit(F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), f"{name}_proj")
    x = t.chain(x, "stem1", (2,), (), (1, 1))
    x = torch.cat([F.max_pool2d(x, 3, 2), t.unit(x, "stem2", 2)], 1)
    x = torch.cat([t.chain(x, "stem3_short", (), ()), t.chain(x, "stem3_long", (), ROW, COLUMN, ())], 1)
    x = torch.cat([t.unit(x, "stem4", 2), F.max_pool2d(x, 3, 2)], 1)
    x = torch.cat([t.unit(x, "a1_1x1"), t.chain(x, "a1_3x3", (), (1, 1)),
                   t.chain(x, "a1_double", (), (1, 1), (1, 1)), pooled(x, "a1")], 1)
    x = torch.cat([t.unit(x, "ra_3x3", 2), t.chain(x, "ra_double", (), (1, 1), (2,)), F.max_pool2d(x, 3, 2)], 1)
    x = torch.cat([t.unit(x, "b1_1x1"), t.chain(x, "b1_7x7", (), ROW, COLUMN),
                   t.chain(x, "b1_double", (), COLUMN, ROW, COLUMN, ROW), pooled(x, "b1")], 1)
    x = torch.cat([t.chain(x, "rb_3x3", (), (2,)), t.chain(x, "rb_7x7", (), ROW, COLUMN, (2,)),
                   F.max_pool2d(x, 3, 2)], 1)
    short, long = t.unit(x, "c1_short"), t.chain(x, "c1_long", (), COLUMN3, ROW3)
    parts = [t.unit(part, f"c1_{of}_{half}", *form) for of, part in (("short", short), ("long", long))
             for half, form in (("row", ROW3), ("column", COLUMN3))]
    return t.classify(torch.cat([t.unit(x, "c1_1x1"), *parts, pooled(x, "c1")], 1))


def inception_resnet_v2(t: Twin, x: Tensor) -> Heads:
    def block(x: Tensor, name: str, scale: float, *branches: tuple[tuple[Any, ...], ...]) -> Tensor:
        parts = [t.chain(x, f"{name}_branch{k}", *layers) for k, layers in enumerate(branches, start=1)]
        return x + scale * t.conv(torch.cat(parts, 1), f"{name}_up")
    x = F.max_pool2d(t.chain(x, "stem1", (2,), (), (1, 1)), 3, 2)
    x = F.max_pool2d(t.chain(x, "stem2", (), ()), 3, 2)
    pool = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    x = torch.cat([t.unit(x, "stem_1x1"), t.chain(x, "stem_5x5", (), (1, 2)),
                   t.chain(x, "stem_3x3", (), (1, 1), (1, 1)), t.unit(pool, "stem_proj")], 1)
    x = t.relu(block(x, "a1", 0.17, ((),), ((), (1, 1)), ((), (1, 1), (1, 1))))
    x = torch.cat([t.unit(x, "ra_3x3", 2), t.chain(x, "ra_double", (), (1, 1), (2,)), F.max_pool2d(x, 3, 2)], 1)
    x = t.relu(block(x, "b1", 0.1, ((),), ((), ROW, COLUMN)))
    x = torch.cat([t.chain(x, "rb_3x3", (), (2,)), t.chain(x, "rb_second", (), (2,)),
                   t.chain(x, "rb_double", (), (1, 1), (2,)), F.max_pool2d(x, 3, 2)], 1)
    x = t.relu(block(x, "c1", 0.2, ((),), ((), ROW3, COLUMN3)))
    return t.classify(t.unit(block(x, "c2", 1.0, ((),), ((), ROW3, COLUMN3)), "last"))


def mlp(t: Twin, x: Tensor, layers: int) -> Heads:
    x = x.flatten(1)
    for k in range(1, layers):
        x = t.relu(t.fc(x, f"fc{k}"))
    return [(t.fc(x, f"fc{layers}"), 1, 1.0)]


def resnet(t: Twin, x: Tensor, units: Sequence[int], convolutions: int, pre: bool, large: bool = False) -> Heads:
    """The small form, or the large one; of three convolutions the second has the stride, of two the first."""
    def convolve(x: Tensor, name: str, k: int, stride: int) -> Tensor:
        three = convolutions == 2 or k == 2
        return t.conv(x, f"{name}_conv{k}", stride if k == convolutions - 1 else 1, int(three))
    x = t.bn(x, "bn_data", fixed=True) if pre else x
    x = t.conv(x, "conv0", *((2, 3) if large else (1, 1)))
    x = x if pre else t.relu(t.bn(x, "bn0"))
    x = F.max_pool2d(x, 3, 2, 1) if large else x
    for s, count in enumerate(units, start=1):
        for u in range(1, count + 1):
            name, stride, body = f"stage{s}_unit{u}", 2 if s > 1 and u == 1 else 1, x
            short = x
            for k in range(1, convolutions + 1):
                if pre:
                    body = t.relu(t.bn(body, f"{name}_bn{k}"))
                    short = body if k == 1 and t.get(f"{name}_sc_weight") is not None else short
                    body = convolve(body, name, k, stride)
                else:
                    body = t.bn(convolve(body, name, k, stride), f"{name}_bn{k}")
                    body = t.relu(body) if k < convolutions else body
            if t.get(f"{name}_sc_weight") is not None:
                short = t.conv(short, f"{name}_sc", stride)
                short = short if pre else t.bn(short, f"{name}_sc_bn")
            x = body + short if pre else t.relu(body + short)
    return t.classify(t.relu(t.bn(x, "bn1")) if pre else x, "fc1")


def densenet(t: Twin, x: Tensor, blocks: Sequence[int]) -> Heads:
    x = F.max_pool2d(t.unit(x, "conv0", 2, 3), 3, 2, 1)
    for b, count in enumerate(blocks, start=1):
        features = [x]
        for k in range(1, count + 1):
            name = f"block{b}_layer{k}"
            body = t.conv(t.relu(t.bn(torch.cat(features, 1), f"{name}_1_bn")), f"{name}_conv1")
            features.append(t.conv(t.relu(t.bn(body, f"{name}_2_bn")), f"{name}_conv2", 1, 1))
        x = torch.cat(features, 1)
        if b < len(blocks):
            x = F.avg_pool2d(t.conv(t.relu(t.bn(x, f"transition{b}_bn")), f"transition{b}_conv"), 2)
    return t.classify(t.relu(t.bn(x, "last_bn")))


def mobilenet(t: Twin, x: Tensor, version: int) -> Heads:
    if version == 1:
        x = t.unit(x, "conv0", 2, 1)
        for k in range(1, 14):
            x = t.unit(t.unit(x, f"conv{k}_dw", 2 if k in (2, 4, 6, 12) else 1, 1), f"conv{k}")
        return t.classify(x)

    def layer(x: Tensor, name: str, stride: int = 1, pad: int = 0) -> Tensor:
        return F.relu6(t.bn(t.conv(x, name, stride, pad), f"{name}_bn"))
    x = layer(x, "conv0", 2, 1)
    for s, (count, stride) in enumerate(((1, 1), (2, 2), (3, 2), (4, 2), (3, 1), (3, 2), (1, 1)), start=1):
        for k in range(1, count + 1):
            name, step = f"stage{s}_block{k}", stride if k == 1 else 1
            body = layer(x, f"{name}_widen") if s > 1 else x
            body = t.conv(layer(body, f"{name}_dw", step, 1), f"{name}_narrow")
            body = t.bn(body, f"{name}_narrow_bn")
            x = x + body if step == 1 and x.shape == body.shape else body
    return t.classify(layer(x, "last"))


def squeezenet(t: Twin, x: Tensor, pooled: Sequence[int]) -> Heads:
    x = t.relu(t.conv(x, "conv1", 2))
    for k in range(2, 10):
        if k in pooled:
            x = F.max_pool2d(x, 3, 2, ceil_mode=True)
        x = t.relu(t.conv(x, f"fire{k}_squeeze"))
        x = t.relu(torch.cat([t.conv(x, f"fire{k}_1x1"), t.conv(x, f"fire{k}_3x3", 1, 1)], 1))
    return [(t.relu(t.conv(x, "conv10")).flatten(2).mean(2), 1, 1.0)]


def unet(t: Twin, x: Tensor, levels: int, padded: bool, norm: bool, pad_odd: bool = False) -> Heads:
    def convolve(x: Tensor, name: str) -> Tensor:
        for k in (1, 2):
            x = t.conv(x, f"{name}_conv{k}", 1, int(padded))
            x = t.relu(t.bn(x, f"{name}_bn{k}") if norm else x)
        return x
    skips = []
    for level in range(1, levels + 1):
        x = convolve(x, f"down{level}")
        skips.append(x)
        x = MAX_POOLS[x.dim()](x, 2)
    x = convolve(x, "bottom")
    for level in range(levels, 0, -1):
        x, skip = t.up(x, f"up{level}"), skips[level - 1]
        if pad_odd:
            x = F.pad(x, [n for a in range(x.dim() - 1, 1, -1) for n in (0, skip.shape[a] - x.shape[a])])
        for axis in range(2, x.dim()):
            skip = skip.narrow(axis, (skip.shape[axis] - x.shape[axis]) // 2, x.shape[axis])
        x = convolve(torch.cat([skip, x], 1), f"up{level}")
    return [(t.conv(x, "last"), 1, 1.0)]


def lstm(t: Twin, x: Tensor, layers: int, tied: bool) -> Heads:
    x = F.embedding(x.long(), t.need("embed_weight"))
    for layer in range(layers):
        flat = [t.need(f"lstm_l{layer}_{part}_{kind}") for kind in ("weight", "bias") for part in ("i2h", "h2h")]
        zero = x.new_zeros(1, x.shape[0], flat[0].shape[0] // 4)
        x = torch.lstm(x, (zero, zero), flat, True, 1, 0.0, True, False, True)[0]
    return [(F.linear(x, t.need("embed_weight" if tied else "pred_weight"), t.need("pred_bias")), 2, 1.0)]


def attend(t: Twin, x: Tensor, name: str, heads: int, causal: bool) -> Tensor:
    q, k, v = (t.fc(x, f"{name}_{part}").unflatten(2, (heads, -1)).transpose(1, 2)
               for part in ("query", "key", "value"))
    length = t.get("length")
    seen = None if length is None else (torch.arange(x.shape[1]) < length[:, None])[:, None, None]
    out = F.scaled_dot_product_attention(q, k, v, seen, is_causal=causal)
    return t.fc(out.transpose(1, 2).flatten(2), f"{name}_output")


def feed(t: Twin, x: Tensor, name: str) -> Tensor:
    return t.fc(F.gelu(t.fc(x, f"{name}_inner")), f"{name}_outer")


def bert(t: Twin, x: Tensor, depth: int, heads: int, classes: bool) -> Heads:
    words = t.need("word_weight")
    segments = t.get("segments")
    kind = torch.zeros_like(x) if segments is None else segments
    x = F.embedding(x.long(), words) + F.embedding(kind.long(), t.need("segment_weight"))
    x = t.ln(x + t.need("place_weight")[:x.shape[1]], "embed_norm", 1e-12)
    for k in range(depth):
        x = t.ln(x + attend(t, x, f"layer{k}", heads, False), f"layer{k}_norm1", 1e-12)
        x = t.ln(x + feed(t, x, f"layer{k}"), f"layer{k}_norm2", 1e-12)
    if classes:
        return [(t.fc(torch.tanh(t.fc(x[:, 0], "pool")), "fc"), 1, 1.0)]
    x = t.ln(F.gelu(t.fc(x, "head")), "head_norm", 1e-12)
    return [(F.linear(x, words, t.need("decoder_bias")), 2, 1.0)]


def gpt(t: Twin, x: Tensor, depth: int, heads: int, tied: bool) -> Heads:
    words = t.need("word_weight")
    x = F.embedding(x.long(), words)
    x = x + t.need("place_weight")[:x.shape[1]]
    for k in range(depth):
        x = x + attend(t, t.ln(x, f"layer{k}_norm1", 1e-5), f"layer{k}", heads, True)
        x = x + feed(t, t.ln(x, f"layer{k}_norm2", 1e-5), f"layer{k}")
    x = t.ln(x, "last_norm", 1e-5)
    return [(F.linear(x, words if tied else t.need("decoder_weight")), 2, 1.0)]
