"""Encodings on the GPU: three training steps have the bits of whole values, in every memory mode."""
from __future__ import annotations

from typing import Any

import numpy as np

import minigraph as mx

from .processes import run

SHAPE, STEPS = (2, 3, 7, 7), 3
MODES: tuple[dict[str, Any], ...] = ({}, {"memory": "naive"}, {"memory": "sublinear"},
                                     {"memory": "vdnn_all", "host_budget": "1GiB"}, {"slices": 2})


def branches() -> mx.sym.Symbol:
    """relu - max pool beside a bounded activation, joined; and relu that pooling and a sum both read."""
    data = mx.sym.Variable("data")
    body = mx.sym.Activation(mx.sym.Convolution(data, kernel=(2, 2), num_filter=4, name="c0"), act_type="relu")
    left = mx.sym.Pooling(body, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
    right = mx.sym.clip(mx.sym.Convolution(data, kernel=(3, 3), stride=(2, 2), num_filter=3, name="c1"), a_min=0,
                        a_max=0.5)
    flat = mx.sym.Flatten(mx.sym.Concat(left, right, dim=1))
    out = mx.sym.FullyConnected(mx.sym.Concat(flat, mx.sym.mean(body, axis=(2, 3)), dim=1), num_hidden=5, name="fc")
    return mx.sym.SoftmaxOutput(out, name="softmax")


def trained(**options: Any) -> list[bytes]:
    """Outputs of three steps, and the parameters after them."""
    module = mx.mod.Module(branches(), context=mx.gpu(), poison=True, **options)
    module.bind([("data", SHAPE)], [("softmax_label", SHAPE[:1])])
    mx.random.seed(3)
    np.random.seed(3)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.1})
    draw, found = np.random.default_rng(1), []
    for _ in range(STEPS):
        images, labels = mx.nd.array(draw.standard_normal(SHAPE)), mx.nd.array(np.arange(SHAPE[0]))
        module.forward_backward(mx.io.DataBatch([images], [labels]))
        module.update()
        found.append(module.get_outputs()[0].asnumpy().tobytes())
    return found + [a.asnumpy().tobytes() for _, a in sorted(module.get_params()[0].items())]


def differing(modes: list[dict[str, Any]]) -> list[str]:
    """The memory modes in which steps with encodings differ from those with whole values."""
    whole = trained(encode=False)
    return [str(options) for options in modes if trained(**options) != whole]


def test_encoded_steps_have_the_bits_of_whole_values_in_every_memory_mode():
    assert run(differing, list(MODES)) == []
