"""Models that MXNet itself wrote and trained: they load, bind, run, and score what they did there.

The files are not part of the project; they are looked for beside it, in shared/compat.
"""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import minigraph as mx
from minigraph.formats.idx import read_idx
from minigraph.plan.report import report
from minigraph.planning import plan

FILES = Path(__file__).resolve().parents[2] / "shared" / "compat"
pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason=f"MXNet's files are not there: {FILES}")


def test_a_perceptron_trained_by_mxnet_scores_on_mnist_what_it_scored_there():
    images = read_idx(FILES / "mnist-test-images.gz", 3).reshape(-1, 784).astype(np.float32) / 255
    labels = read_idx(FILES / "mnist-test-labels.gz", 1)
    mod = mx.mod.Module.load(str(FILES / "test_mnist_model"), 10)
    data = mx.io.NDArrayIter(images, labels, batch_size=192)
    mod.bind(data.provide_data, data.provide_label, for_training=False)
    assert dict(mod.score(data, "acc")) == {"accuracy": 0.9698}
    symbol, arguments, states = mx.model.load_checkpoint(str(FILES / "test_mnist_model"), 10)
    model = mx.model.FeedForward(symbol, arg_params=arguments, aux_params=states)
    assert (model.predict(images[:1000]).argmax(1) == labels[:1000]).mean() > 0.9


@pytest.mark.parametrize("version", [1, 2])
def test_a_residual_network_of_gluon_takes_every_array_of_its_file_and_runs(version):
    symbol, arguments, states = mx.model.load_checkpoint(str(FILES / f"cifar_resnet20_v{version}"), 0)
    assert set(arguments) == set(symbol.list_arguments()) - {"data"}
    assert set(states) == set(symbol.list_auxiliary_states())
    mod = mx.mod.Module(symbol, label_names=None, poison=True)
    mod.bind([("data", (2, 3, 32, 32))], for_training=False)
    mod.set_params(arguments, states)
    images = np.random.RandomState(0).randn(2, 3, 32, 32).astype(np.float32)
    mod.forward(mx.io.DataBatch([mx.nd.array(images)]))
    both = mod.get_outputs()[0].asnumpy()
    assert both.shape == (2, 10) and np.isfinite(both).all() and both.std(axis=1).min() > 0.1
    mod.forward(mx.io.DataBatch([mx.nd.array(images[1:])]))
    np.testing.assert_allclose(mod.get_outputs()[0].asnumpy(), both[1:], rtol=1e-4, atol=1e-4)


def test_a_network_of_1286_nodes_is_planned_and_verified_at_full_size():
    symbol = mx.sym.load(str(FILES / "resnet152-symbol.json"))
    assert len(symbol.nodes()) == 1286
    figures = {}
    for program, optimizer in (("step", "sgd"), ("eval", None)):
        figures[program] = report(plan(symbol, {"data": (32, 3, 224, 224)}, optimizer, program))
    step, forward = figures["step"], figures["eval"]
    assert step.verify_seconds is not None and forward.verify_seconds is not None
    assert step.lower_bound_bytes <= step.planned_bytes < 1.02 * step.lower_bound_bytes
    assert step.planned_bytes < 0.4 * step.naive_bytes
    assert forward.planned_bytes < 0.08 * forward.naive_bytes
    shapes = symbol.infer_shape(data=(32, 3, 224, 224))[0]
    weights = 4 * sum(np.prod(shape) for shape in shapes[1:-1])  # neither data nor labels
    assert weights < forward.persistent_bytes < 1.01 * weights


SHAPES = {
    "NewsGroups-symbol.json": ((1, 300), (1, 13)), "clojure_test-symbol.json": ((2, 784), (2, 10)),
    "go-symbol.json": ((3,), (3, 10)), "mkldnn_model1-symbol.json": ((1, 3, 224, 224), None),
    "save_000800.json": ((3, 20), None), "sm-symbol.json": ((3, 2), (3, 1)),
    "test_mnist_model-symbol.json": ((2, 784), (2, 10)), "test_model_with_dropout-symbol.json": ((2, 30), (2, 4)),
    "testnetv1-symbol.json": ((1, 3, 224, 224), (1, 4)), "cifar_resnet20_v1-symbol.json": ((1, 3, 32, 32), (1, 10)),
    "cifar_resnet20_v2-symbol.json": ((1, 3, 32, 32), (1, 10)), "resnet152-symbol.json": ((1, 3, 32, 32), None)}
"""Shapes of data and of the first output, where a symbol tells them."""
TOO_LARGE_TO_RUN = {"NewsGroups-symbol.json", "mkldnn_model1-symbol.json"}
"""Hundreds of megabytes of weights: these are planned only."""


def test_there_are_shapes_for_every_symbol():
    assert {path.name for path in FILES.glob("*.json")} == set(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
def test_every_symbol_binds_and_runs(name):
    symbol = mx.sym.load(str(FILES / name))
    data, output = SHAPES[name]
    if name in TOO_LARGE_TO_RUN:
        made = plan(symbol, {"data": data}, program="eval")
        assert output in (None, made.buffers.shape[made.outputs[0].buffer])
        return
    labels = {"softmax_label": data} if name == "go-symbol.json" else {}  # it reshapes its labels
    exe = symbol.simple_bind(mx.cpu(), grad_req="null", data=data, poison=True, **labels)
    draw = np.random.RandomState(0)
    for argument, array in exe.arg_dict.items():
        array[:] = 1 if argument.endswith("gamma") else 0.1 * draw.randn(*array.shape)
    for state, array in exe.aux_dict.items():
        array[:] = float("var" in state)
    found = exe.forward()[0].asnumpy()
    assert np.isfinite(found).all() and output in (None, found.shape)
    if "Softmax" in symbol.debug_str().rsplit("Op:", 1)[1]:
        np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)
