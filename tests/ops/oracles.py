"""What every operator computes, said in PyTorch's own operators: the independent side of test_oracle.py.

An oracle takes an op's typed parameters and its inputs as tensors (control buffers as float32, everything else
as float64) and returns the outputs. Gradients follow by torch.autograd, for the ops that are their own loss from
the scalar in LOSSES. Random ops draw from Philox in Python integers.
"""
from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from minigraph.ops.chain import steps_of

Oracle = Callable[..., Sequence[Tensor]]
ORACLES: dict[str, Oracle] = {}
"""Training form by operator name."""
EVALUATION: dict[str, Oracle] = {}
"""Evaluation form of the ops where it differs from the training form."""
AUXILIARY: dict[str, Oracle] = {}
"""Auxiliary states after one training forward."""
LOSSES: dict[str, Callable[..., Tensor]] = {}
"""The scalar whose gradient an op that is its own loss promises."""


def oracle(*names: str, table: dict[str, Any] = ORACLES) -> Callable[[Any], Any]:
    """Decorator: the oracle of operators."""
    def add(function: Any) -> Any:
        table.update(dict.fromkeys(names, function))
        return function
    return add


def simple(function: Callable[..., Tensor]) -> Oracle:
    """An oracle of one output that reads no parameter."""
    return lambda p, *ins: [function(*ins)]


def scalar(function: Callable[[Tensor, Any], Tensor]) -> Oracle:
    """An oracle of a tensor and the constant `scalar`, as a tensor of the data's shape."""
    return lambda p, x: [function(x, torch.full_like(x, p.scalar)).to(x.dtype)]


def kind(shape: Any, p: Any) -> torch.dtype:
    """The torch dtype of a parameter `dtype`."""
    return getattr(torch, np.dtype(p.dtype).name)


# -- element by element --------------------------------------------------------------------------------------
ACTIVATIONS = {"relu": F.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "softrelu": F.softplus,
               "softsign": F.softsign}
UNARY = {"relu": F.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "softsign": F.softsign, "exp": torch.exp,
         "log": torch.log, "sqrt": torch.sqrt, "square": torch.square, "abs": torch.abs,
         "negative": torch.neg, "reciprocal": torch.reciprocal, "sign": torch.sign, "_copy": torch.clone,
         "BlockGrad": torch.detach, "MakeLoss": torch.clone, "zeros_like": torch.zeros_like,
         "ones_like": torch.ones_like, "_fill_ones": torch.ones_like, "_gelu": F.gelu}
BINARY = {"elemwise_add": torch.add, "elemwise_sub": torch.sub, "elemwise_mul": torch.mul,
          "elemwise_div": torch.div, "broadcast_add": torch.add, "broadcast_sub": torch.sub,
          "broadcast_mul": torch.mul, "broadcast_div": torch.div, "_power": torch.pow,
          "_maximum": torch.maximum, "_minimum": torch.minimum, "_accumulate": torch.add,
          "_grad_add": torch.add, "_assign": lambda old, value: value.clone(), "_prelu": F.prelu,
          "_reshape_like": lambda x, like: x.reshape(like.shape),
          "_sum_like": lambda grad, like: grad.sum_to_size(like.shape)}
COMPARISONS = {"equal": torch.eq, "not_equal": torch.ne, "greater": torch.gt, "greater_equal": torch.ge,
               "lesser": torch.lt, "lesser_equal": torch.le}
SCALAR = {"plus": torch.add, "minus": torch.sub, "rminus": lambda x, s: s - x, "mul": torch.mul,
          "div": torch.div, "rdiv": lambda x, s: s / x, "power": torch.pow, "rpower": lambda x, s: s ** x,
          "maximum": torch.maximum, "minimum": torch.minimum, **COMPARISONS}
ORACLES |= {name: simple(f) for name, f in {**UNARY, **BINARY}.items()}
ORACLES |= {f"_{name}": simple(lambda a, b, f=f: f(a, b).double()) for name, f in COMPARISONS.items()}
ORACLES |= {f"_{name}_scalar": scalar(f) for name, f in SCALAR.items()}
ORACLES |= {
    "Activation": lambda p, x: [ACTIVATIONS[p.act_type](x)],
    "add_n": lambda p, *ins: [torch.stack(ins).sum(0)],
    "_leaky": lambda p, x: [F.leaky_relu(x, p.slope)],
    "_elu": lambda p, x: [p.above * F.elu(x, p.below / p.above)],
    "Cast": lambda p, x: [x.to(kind(x, p))],
    "_zeros": lambda p: [torch.zeros(p.shape, dtype=kind(None, p))],
    "_ones": lambda p: [torch.ones(p.shape, dtype=kind(None, p))],
    "_full": lambda p: [torch.full(p.shape, p.value, dtype=kind(None, p))],
}


@oracle("LeakyReLU")
def leaky_relu(p: Any, x: Tensor, *rest: Tensor) -> list[Tensor]:
    """By act_type; rest is gamma for prelu, the control buffer for rrelu."""
    kinds: dict[str, Callable[[], Tensor]] = {
        "leaky": lambda: F.leaky_relu(x, p.slope), "elu": lambda: F.elu(x, p.slope), "selu": lambda: F.selu(x),
        "gelu": lambda: F.gelu(x), "prelu": lambda: F.prelu(x, rest[0]), "rrelu": lambda: rrelu(p, x, *rest)[0]}
    return [kinds[p.act_type]()]


@oracle("LeakyReLU", table=EVALUATION)
def leaky_relu_evaluated(p: Any, x: Tensor, *rest: Tensor) -> list[Tensor]:
    if p.act_type == "rrelu":
        return [F.rrelu(x, p.lower_bound, p.upper_bound, training=False)]
    return leaky_relu(p, x, *rest)


# -- shapes and indices --------------------------------------------------------------------------------------
ORACLES |= {
    "Concat": lambda p, *ins: [torch.cat(ins, p.dim)],
    "_rnn_param_concat": lambda p, *ins: [torch.cat(ins, p.dim)],
    "Flatten": lambda p, x: [x.reshape(x.shape[0], -1)],
    "SwapAxis": lambda p, x: [x.transpose(p.dim1, p.dim2)],
    "expand_dims": lambda p, x: [x.unsqueeze(p.axis)],
    "transpose": lambda p, x: [x.permute(p.axes or tuple(range(x.dim()))[::-1])],
    "Embedding": lambda p, ids, weight: [F.embedding(ids.long(), weight)],
    "one_hot": lambda p, ids: [torch.where(F.one_hot(ids.long(), p.depth) > 0, p.on_value,
                                           p.off_value).to(kind(ids, p))],
}


@oracle("Reshape")
def reshape(p: Any, x: Tensor) -> list[Tensor]:
    """The codes one by one: unflatten and flatten move the dimensions, view infers."""
    assert not p.reverse
    codes, axis = list(p.shape), 0
    if min(codes) < -1:
        while codes:
            code = codes.pop(0)
            if code == -4:
                x = x.unflatten(axis, (codes.pop(0), codes.pop(0)))
                axis += 2
            elif code == -3:
                x, axis = x.flatten(axis, axis + 1), axis + 1
            elif code in (0, -2):
                axis = axis + 1 if code == 0 else x.dim()
            else:
                raise NotImplementedError(code)
        return [x]
    return [x.reshape([x.shape[i] if code == 0 else code for i, code in enumerate(codes)])]


@oracle("SliceChannel")
def slice_channel(p: Any, x: Tensor) -> Sequence[Tensor]:
    return torch.unbind(x, p.axis) if p.squeeze_axis else torch.chunk(x, p.num_outputs, p.axis)


@oracle("slice_axis")
def slice_axis(p: Any, x: Tensor) -> list[Tensor]:
    return [x.index_select(p.axis, torch.arange(x.shape[p.axis])[p.begin:p.end])]


@oracle("slice")
def slice_by_axes(p: Any, x: Tensor) -> list[Tensor]:
    begin, end, step = (ast.literal_eval(text) for text in (p.begin, p.end, p.step))
    for axis, bounds in enumerate(zip(begin, end, step or (None,) * len(begin), strict=True)):
        x = x.index_select(axis, torch.tensor(range(x.shape[axis])[slice(*bounds)]))
    return [x]


@oracle("pick")
def pick(p: Any, x: Tensor, ids: Tensor) -> list[Tensor]:
    ids = ids.long() if ids.dim() == x.dim() else ids.long().unsqueeze(p.axis)
    out = torch.gather(x, p.axis, ids)
    return [out if p.keepdims else out.squeeze(p.axis)]


@oracle("take")
def take(p: Any, x: Tensor, ids: Tensor) -> list[Tensor]:
    axis = p.axis % x.dim()
    return [x.index_select(axis, ids.long().flatten()).unflatten(axis, ids.shape)]


def reduction(function: Callable[..., Tensor]) -> Oracle:
    """An oracle of a reduction by a torch function of (data, axes, keepdim)."""
    def apply(p: Any, x: Tensor) -> list[Tensor]:
        given = {a % x.dim() for a in p.axis or range(x.dim())}
        axes = [a for a in range(x.dim()) if (a in given) != (p.exclude and p.axis is not None)]
        out = function(x, axes, p.keepdims) if axes else x.clone()      # no axes mean all of them to torch
        return [out if out.dim() else out.reshape(1)]
    return apply


ORACLES |= {"sum": reduction(torch.sum), "mean": reduction(torch.mean), "max": reduction(torch.amax),
            "min": reduction(torch.amin)}


# -- layers --------------------------------------------------------------------------------------------------
@oracle("FullyConnected")
def fully_connected(p: Any, x: Tensor, *weights: Tensor) -> list[Tensor]:
    return [F.linear(x.reshape(len(x), -1) if p.flatten else x, *weights)]


@oracle("_fully_connected_backward_data")
def fully_connected_backward_data(p: Any, grad: Tensor, weight: Tensor, data: Tensor, *addend: Tensor) -> list[Tensor]:
    return [sum(addend, (grad @ weight).reshape(data.shape))]


@oracle("_fully_connected_backward_weight")
def fully_connected_backward_weight(p: Any, grad: Tensor, data: Tensor, weight: Tensor, *addend: Tensor,
                                    ) -> list[Tensor]:
    rows = grad.reshape(-1, len(weight))
    return [sum(addend, rows.T @ data.reshape(len(rows), -1))]


@oracle("_fully_connected_backward_bias")
def fully_connected_backward_bias(p: Any, grad: Tensor, *addend: Tensor) -> list[Tensor]:
    return [sum(addend, grad.reshape(-1, grad.shape[-1]).sum(0))]


@oracle("lstm_cell")
def lstm_cell(p: Any, data_gates: Tensor, state_gates: Tensor, cell: Tensor) -> list[Tensor]:
    i, f, g, o = (data_gates + state_gates).chunk(4, dim=1)
    gates = [i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()]
    new = gates[1] * cell + gates[0] * gates[2]
    return [gates[3] * new.tanh(), new, torch.cat(gates, 1)]


@oracle("_lstm_cell_backward")
def lstm_cell_backward(p: Any, grad: Tensor, *rest: Tensor) -> list[Tensor]:
    *arriving, old, cell, gates = rest
    i, f, g, o = gates.chunk(4, dim=1)
    through = grad * o * (1 - cell.tanh() ** 2) + sum(arriving)
    parts = [through * g * i * (1 - i), through * old * f * (1 - f), through * i * (1 - g * g),
             grad * cell.tanh() * o * (1 - o)]
    return [torch.cat(parts, 1), through * f]


CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)


@oracle("Convolution")
def convolution(p: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> list[Tensor]:
    return [CONVOLUTIONS[len(p.kernel) - 1](x, weight, bias, p.stride or 1, p.pad or 0, p.dilate or 1,
                                            p.num_group)]


@oracle("_convolution_activated")
def convolution_activated(p: Any, *ins: Tensor) -> list[Tensor]:
    return [getattr(torch, p.act_type)(convolution(p, *ins)[0])]


@oracle("_fully_connected_activated")
def fully_connected_activated(p: Any, *ins: Tensor) -> list[Tensor]:
    return [getattr(torch, p.act_type)(ORACLES["FullyConnected"](p, *ins)[0])]


@oracle("_convolution_backward_data")
def convolution_backward_data(p: Any, grad: Tensor, weight: Tensor, data: Tensor, *addend: Tensor) -> list[Tensor]:
    x = torch.zeros_like(data).requires_grad_()
    with torch.enable_grad():
        out = convolution(replace(p, no_bias=True), x, weight)[0]
        found, = torch.autograd.grad(out, x, grad)
    return [sum(addend, found)]


@oracle("Pooling")
def pooling(p: Any, x: Tensor) -> list[Tensor]:
    n = x.dim() - 2
    if p.global_pool:
        whole = {"max": torch.amax, "avg": torch.mean, "sum": torch.sum}[p.pool_type]
        return [whole(x, tuple(range(2, x.dim())), True)]
    stride, pad, ceil = p.stride or (1,) * n, p.pad or (0,) * n, p.pooling_convention != "valid"
    wide = any(2 * m > k for m, k in zip(pad, p.kernel, strict=True))       # which torch refuses
    if p.pooling_convention == "same" or p.pool_type == "sum" or wide:
        return [padded_pooling(p, x, stride, pad)]
    if p.pool_type == "max":
        return [(F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1](x, p.kernel, stride, pad, ceil_mode=ceil)]
    count = p.count_include_pad is not False
    return [(F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1](x, p.kernel, stride, pad, ceil, count)]


def padded_pooling(p: Any, x: Tensor, stride: Sequence[int], pad: Sequence[int]) -> Tensor:
    """Over data padded by hand as far as the last window reaches; sums are convolutions with ones."""
    rest = []
    for length, k, s, m in zip(x.shape[2:], p.kernel, stride, pad, strict=True):
        steps = (length + 2 * m - (0 if p.pooling_convention == "same" else k)) / s
        count = (math.floor if p.pooling_convention == "valid" else math.ceil)(steps)
        count = min(count + (p.pooling_convention != "same"), (length + m - 1) // s + 1)
        rest = [0, (count - 1) * s + k - length - 2 * m, *rest]     # F.pad begins with the last axis
    margins = [side for m in pad[::-1] for side in (m, m)]

    def padded(data: Tensor, value: float, beyond: float) -> Tensor:
        return F.pad(F.pad(data, margins, value=value), rest, value=beyond)

    def total(data: Tensor) -> Tensor:
        ones = torch.ones(x.shape[1], 1, *p.kernel, dtype=x.dtype)
        return CONVOLUTIONS[len(p.kernel) - 1](data, ones, stride=stride, groups=x.shape[1])
    if p.pool_type == "max":
        data = padded(x, -math.inf, -math.inf)
        return (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(p.kernel) - 1](data, p.kernel, stride)
    sums = total(padded(x, 0, 0))
    return sums if p.pool_type == "sum" else sums / total(
        padded(torch.ones_like(x), float(p.count_include_pad is not False), 0))


@oracle("_contrib_SyncBatchNorm")
@oracle("BatchNorm")
def batch_norm(p: Any, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor,
               train: bool = True) -> list[Tensor]:
    scale = torch.ones_like(gamma) if p.fix_gamma else gamma
    out = F.batch_norm(x.movedim(p.axis, 1), mean.clone(), var.clone(), scale, beta,
                       train and not p.use_global_stats, 0.0, p.eps)
    return [out.movedim(1, p.axis)]


@oracle("_contrib_SyncBatchNorm", table=EVALUATION)
@oracle("BatchNorm", table=EVALUATION)
def batch_norm_evaluated(p: Any, *ins: Tensor) -> list[Tensor]:
    return batch_norm(p, *ins, train=False)


@oracle("_contrib_SyncBatchNorm", table=AUXILIARY)
@oracle("BatchNorm", table=AUXILIARY)
def batch_norm_moving(p: Any, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor) -> list[Tensor]:
    if p.use_global_stats:
        return [mean, var]
    rows = x.movedim(p.axis, 0).flatten(1)
    new_var, new_mean = torch.var_mean(rows, 1, correction=0)
    return [torch.lerp(new, old, p.momentum) for new, old in ((new_mean, mean), (new_var, var))]


def followed(p: Any, normalised: Tensor, addend: tuple[Tensor, ...]) -> Tensor:
    """What follows a normalisation in the same pass."""
    total = sum(addend, normalised)
    return {None: total.clone, "relu": total.relu, "sigmoid": total.sigmoid, "tanh": total.tanh}[p.act_type]()


@oracle("_batchnorm_train")
def batch_norm_train(p: Any, x: Tensor, gamma: Tensor, beta: Tensor, *addend: Tensor) -> list[Tensor]:
    scale = torch.ones_like(gamma) if p.fix_gamma else gamma
    out = F.batch_norm(x.movedim(p.axis, 1), None, None, scale, beta, True, 0.0, p.eps).movedim(1, p.axis)
    var, mean = torch.var_mean(x.movedim(p.axis, 0).flatten(1), 1, correction=0)
    return [followed(p, out, addend), mean, var, torch.zeros_like(mean)]


@oracle("_batchnorm_apply")
def batch_norm_apply(p: Any, x: Tensor, gamma: Tensor, beta: Tensor, *others: Tensor) -> list[Tensor]:
    *addend, mean, var, rest = others
    exact = F.batch_norm(x.movedim(p.axis, 1), mean + rest, var, torch.ones_like(gamma) if p.fix_gamma else gamma, beta,
                         False, 0.0, p.eps)
    return [followed(p, exact.movedim(1, p.axis), tuple(addend))]


@oracle("_batchnorm_inference")
def batch_norm_inference(p: Any, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor,
                         *addend: Tensor) -> list[Tensor]:
    scale = torch.ones_like(gamma) if p.fix_gamma else gamma
    out = F.batch_norm(x.movedim(p.axis, 1), mean.detach(), var.detach(), scale, beta, False, 0.0, p.eps)
    return [followed(p, out.movedim(1, p.axis), addend)]


@oracle("_batchnorm_fold")
def batch_norm_fold(p: Any, weight: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor,
                    *bias: Tensor) -> list[Tensor]:
    scale = (torch.ones_like(gamma) if p.fix_gamma else gamma) / (var + p.eps).sqrt()
    return [torch.einsum("f...,f->f...", weight, scale), beta + (sum(bias, torch.zeros_like(mean)) - mean) * scale]


@oracle("_elementwise")
def elementwise(p: Any, *ins: Tensor) -> list[Tensor]:
    registers = list(ins)
    for step in steps_of(p.program):
        registers.append(ORACLES[step.op.name](step.params, *(registers[r] for r in step.inputs))[0])
    return registers[-1:]


@oracle("_activation_backward")
def activation_backward(p: Any, grad: Tensor, out: Tensor) -> list[Tensor]:
    slopes = {"relu": (out > 0).to(out.dtype), "sigmoid": out * (1 - out), "tanh": 1 - out ** 2,
              "softrelu": -torch.expm1(-out), "softsign": (1 - out.abs()) ** 2}
    return [grad * slopes[p.act_type]]


@oracle("_to_blocked")
def blocked_channels(p: Any, x: Tensor) -> list[Tensor]:
    padded = F.pad(x.movedim(1, -1), (0, -x.shape[1] % 16))
    return [padded.unflatten(-1, (-1, 16)).movedim(-2, 1)]


@oracle("_to_plain")
def plain_channels(p: Any, x: Tensor) -> list[Tensor]:
    return [x.movedim(1, -2).flatten(-2)[..., :p.channels].movedim(-1, 1)]


@oracle("LayerNorm")
def layer_norm(p: Any, x: Tensor, gamma: Tensor, beta: Tensor) -> list[Tensor]:
    out = F.layer_norm(x.movedim(p.axis, -1), gamma.shape, gamma, beta, p.eps).movedim(-1, p.axis)
    var, mean = torch.var_mean(x, p.axis, correction=0, keepdim=True)
    return [out, mean, (var + p.eps).sqrt()]


# -- softmax and losses --------------------------------------------------------------------------------------
ORACLES |= {
    "softmax": lambda p, x: [F.softmax(x / (p.temperature or 1), p.axis)],
    "log_softmax": lambda p, x: [F.log_softmax(x / (p.temperature or 1), p.axis)],
    "softmax_cross_entropy": lambda p, x, label: [F.cross_entropy(x, label.long(), reduction="sum").reshape(1)],
    "LinearRegressionOutput": lambda p, x, label: [x.clone()],
    "LogisticRegressionOutput": lambda p, x, label: [torch.sigmoid(x)],
    "MAERegressionOutput": lambda p, x, label: [x.clone()],
    "SoftmaxOutput": lambda p, x, label: [_softmax_of(F.softmax, p, x)],
    "SoftmaxActivation": lambda p, x: [F.softmax(x, 1) if p.mode == "channel"
                                       else F.softmax(x.flatten(1), 1).reshape(x.shape)],
}


def _softmax_of(function: Any, p: Any, x: Tensor) -> Tensor:
    if p.multi_output or p.preserve_shape:
        return function(x, 1 if p.multi_output else -1)
    return function(x.flatten(1), 1).reshape(x.shape)


@oracle("SoftmaxOutput", table=LOSSES)
def softmax_output_loss(p: Any, x: Tensor, label: Tensor) -> Tensor:
    """Cross-entropy with smoothed targets, ignored labels left out, and divided as `normalization` says."""
    logs = _softmax_of(F.log_softmax, p, x)
    if label.shape == x.shape:
        axis = -1 if p.preserve_shape else 1
        data = x if p.multi_output or p.preserve_shape else x.flatten(1)
        return (torch.logsumexp(data, axis).sum() - (label * x).sum()) * p.grad_scale
    rows = logs.movedim(1, -1) if p.multi_output else logs if p.preserve_shape else logs.flatten(1)
    classes, ids = rows.shape[-1], label.reshape(rows.shape[:-1])
    kept = ids != p.ignore_label
    counted = kept if p.use_ignore else torch.ones_like(kept)
    hot = F.one_hot(torch.where(counted, ids, 0).long(), classes).double()
    target = hot * (1 - p.smooth_alpha) + (1 - hot) * p.smooth_alpha / max(classes - 1, 1)
    places = rows[0, ..., 0].numel() if p.multi_output else 1
    labels = {"null": 1, "batch": ids.shape[0] if p.multi_output else ids.numel(),
              "valid": max(int(kept.sum()), 1)}[p.normalization]
    divisor = labels if p.normalization == "valid" else labels * places
    return -(target * rows).sum(-1)[counted].sum() * p.grad_scale / divisor


def _regression(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda p, x, label: function(x, label.reshape(x.shape)) * p.grad_scale * len(x) / x.numel()


LOSSES |= {
    "LinearRegressionOutput": _regression(lambda x, t: F.mse_loss(x, t, reduction="sum") / 2),
    "LogisticRegressionOutput": _regression(
        lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="sum")),
    "MAERegressionOutput": _regression(lambda x, t: F.l1_loss(x, t, reduction="sum")),
    "BlockGrad": lambda p, x: x.sum() * 0,
}


@oracle("MakeLoss", table=LOSSES)
def make_loss(p: Any, x: Tensor) -> Tensor:
    count = {"null": 1, "batch": len(x), "valid": max(int((x > p.valid_thresh).sum()), 1)}[p.normalization]
    return x.sum() * p.grad_scale / count


# -- random numbers ------------------------------------------------------------------------------------------
def philox_words(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Philox-4x32-10 of Salmon et al. 2011, in Python integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first, second = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (second >> 32) ^ c1 ^ k0, second & 0xFFFFFFFF, (first >> 32) ^ c3 ^ k1, first & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def uniforms(control: Tensor, ordinal: int, shape: Sequence[int]) -> Tensor:
    """Numbers in [0, 1) with 24 bits: word i % 4 of block i // 4 for element i."""
    low, high, step, _ = (int(w) for w in control.numpy()[:4].view(np.uint32))
    size = math.prod(shape)
    words = [w for block in range(-(-size // 4))
             for w in philox_words((block & 0xFFFFFFFF, block >> 32, step, ordinal), (low, high))]
    return torch.tensor([(w >> 8) / 2 ** 24 for w in words[:size]], dtype=torch.float64).reshape(tuple(shape))


def _ordinal(p: Any) -> int:
    return getattr(p, "ordinal", 0)


@oracle("Dropout", "_dropout", "_dropout_backward")
def dropout(p: Any, x: Tensor, control: Tensor) -> list[Tensor]:
    """An element is kept where its number is at least p; the draw is shared along `axes`."""
    if p.p == 0:
        return [x.clone()]
    axes = {a % x.dim() for a in p.axes}
    kept = uniforms(control, _ordinal(p), [1 if a in axes else d for a, d in enumerate(x.shape)]) >= p.p
    return [x * kept / (1 - p.p)]


@oracle("Dropout", table=EVALUATION)
def dropout_evaluated(p: Any, x: Tensor, control: Tensor) -> list[Tensor]:
    return dropout(p, x, control) if p.mode == "always" else [F.dropout(x, p.p, training=False)]


@oracle("_rrelu")
def rrelu(p: Any, x: Tensor, control: Tensor) -> list[Tensor]:
    slopes = uniforms(control, _ordinal(p), x.shape) * (p.upper_bound - p.lower_bound) + p.lower_bound
    return [torch.where(x > 0, x, slopes * x)]


@oracle("_random_uniform", "_uniform_keyed")
def uniform(p: Any, control: Tensor) -> list[Tensor]:
    return [p.low + (p.high - p.low) * uniforms(control, _ordinal(p), p.shape)]


@oracle("_random_normal", "_normal_keyed")
def normal(p: Any, control: Tensor) -> list[Tensor]:
    """Box and Muller: numbers (0, 1) of a block give samples (0, 1), numbers (2, 3) samples (2, 3)."""
    size = math.prod(p.shape)
    pairs = uniforms(control, _ordinal(p), (-(-size // 4) * 2, 2))
    radius, angle = (-2 * torch.log1p(-pairs[:, 0])).sqrt(), 2 * math.pi * pairs[:, 1]
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    return [p.loc + p.scale * points.flatten()[:size].reshape(p.shape)]


@oracle("scaled_dot_product_attention")
def attention(p: Any, *ins: Tensor) -> list[Tensor]:
    """Heads by reshaping, all scores at once, and PyTorch's softmax; rows that see nothing are replaced by 0."""
    query, key, value = (t.unflatten(2, (p.num_heads, -1)).transpose(1, 2) for t in ins[:3])
    scores = query @ key.transpose(2, 3) * (query.shape[3] ** -0.5 if p.scale is None else p.scale)
    seen = torch.ones_like(scores, dtype=torch.bool)
    if p.use_mask:
        seen = seen & (ins[3] != 0)
    if p.use_length:
        seen = seen & (torch.arange(scores.shape[3]) < ins[-1][:, None, None, None])
    if p.causal:
        seen = seen.tril()
    some = seen.any(3, keepdim=True)
    scores = scores.masked_fill(~seen, -math.inf).masked_fill(~some, 0)
    out = torch.where(some, scores.softmax(3), 0) @ value
    lse = torch.where(some[..., 0], scores.logsumexp(3), -2.0 ** 127)
    return [out.transpose(1, 2).flatten(2), lse]
