"""Marks of MXNet's `force_mirroring`: what they name runs again in backward, in every way of planning, and no bit
changes. Scripts that search for marks by what `debug_str` tells find plans about as small as `sublinear`'s."""
from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph import cli
from minigraph.base import MXNetError
from minigraph.planning import plan
from zoo import resnet

MIB = 2**20


# -- a search for marks, by thresholds ----------------------------------------------------------------------------
def marked(symbol: mx.sym.Symbol, threshold: int, shapes: dict[str, tuple[int, ...]]) -> tuple[mx.sym.Symbol, int, int]:
    """A copy whose nodes all run again, but for stages behind more than `threshold` bytes; with the bytes of the
    stages, and those of the largest part between two."""
    symbol = symbol.__copy__()
    internals = symbol.get_internals()
    _, found, _ = internals.infer_shape(**shapes)
    kept = largest = local = 0
    for k, (name, shape) in enumerate(zip(internals.list_outputs(), found, strict=True)):
        if name.endswith(("weight", "bias", "gamma", "beta")):
            continue
        nbytes = 4 * math.prod(shape)
        local += nbytes
        stage = internals[k].attr("mirror_stage") == "True" and local > threshold
        internals[k]._set_attr(force_mirroring=str(not stage))
        if stage:
            kept, largest, local = kept + nbytes, max(largest, local), 0
    return symbol, kept, largest


def megabytes(symbol: mx.sym.Symbol, shapes: dict[str, tuple[int, ...]]) -> int:
    """What the executor says of itself, read as scripts read it."""
    executor = symbol.simple_bind(ctx=mx.cpu(), grad_req="write", **shapes)
    return int(executor.debug_str().split("\n")[-3].split()[1])


def searched(symbol: mx.sym.Symbol, shapes: dict[str, tuple[int, ...]], trials: int = 6) -> mx.sym.Symbol:
    """The symbol with the best marks, of thresholds around the square root rule."""
    tried: list[tuple[int, int]] = []
    threshold, least = 0, None
    for _ in range(3):
        found, kept, largest = marked(symbol, threshold, shapes)
        tried.append((megabytes(found, shapes), threshold))
        least = largest if least is None else min(least, largest)
        threshold = math.isqrt(kept * largest // 2)
    assert least is not None
    step = int((threshold * math.sqrt(2) - least) / trials)
    for k in range(trials if step > 0 else 0):
        found, _, _ = marked(symbol, least + (k + 1) * step, shapes)
        tried.append((megabytes(found, shapes), least + (k + 1) * step))
    return marked(symbol, min(tried)[1], shapes)[0]


# -- networks -----------------------------------------------------------------------------------------------------
def fully_connected(layers: int = 24) -> mx.sym.Symbol:
    h = mx.sym.Variable("data")
    for k in range(layers):
        h = mx.sym.FullyConnected(h, num_hidden=512, name=f"fc{k}")
        h = mx.sym.Activation(h, act_type="relu", name=f"relu{k}", attr={"mirror_stage": "True"})
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(h, num_hidden=10, name="classes"), name="softmax")


def residual(depth: int = 56) -> mx.sym.Symbol:
    """A residual network whose units are its stages."""
    symbol = resnet.get_symbol(10, depth=depth, image_shape="3,32,32")
    for name in symbol.get_internals().list_outputs():
        if name.endswith("_relu_output"):
            symbol.get_internals()[name]._set_attr(mirror_stage="True")
    return symbol


@pytest.mark.parametrize("symbol, shapes", [
    (fully_connected(), {"data": (2048, 512), "softmax_label": (2048,)}),
    (residual(), {"data": (32, 3, 32, 32), "softmax_label": (32,)})], ids=["24 x FC512", "resnet"])
def test_searched_marks_save_what_sublinear_saves_within_five_percent(symbol: Any, shapes: Any) -> None:
    found = searched(symbol, shapes)
    plain, marks, sublinear = (
        each.simple_bind(mx.cpu(), grad_req="write", memory=memory, **shapes).plan.planned_bytes
        for each, memory in ((symbol, None), (found, None), (symbol, "sublinear")))
    assert plain - marks >= 0.95 * (plain - sublinear) > 0.2 * plain


# -- small networks -----------------------------------------------------------------------------------------------
SHAPES = {"data": (16, 8)}


def small(attr: dict[str, str] | None = None, keep: tuple[int, ...] = (3, 7)) -> mx.sym.Symbol:
    """Twelve layers with dropout whose nodes have `attr`, but for the activations `keep`, which are to be kept."""
    h = mx.sym.Variable("data")
    for k in range(12):
        with mx.AttrScope(**(attr or {})):
            h = mx.sym.FullyConnected(h, num_hidden=32, name=f"fc{k}")
            h = mx.sym.Dropout(h, p=0.3, name=f"drop{k}")
        kept = {"force_mirroring": "False"} if k in keep else attr
        h = mx.sym.Activation(h, act_type="tanh", name=f"act{k}", attr=kept)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(h, num_hidden=4, name="classes"), name="softmax")


def again(found: Any) -> set[str]:
    """The nodes that a plan runs more than once."""
    return {name.partition("/again")[0] for name in found.instructions.name if "/again" in name}


FORCED = {"__force_mirroring__": "True"}


@pytest.mark.parametrize("spelling", [{"__force_mirroring__": "True"}, {"force_mirroring": "True"},
                                      {"force_mirroring": "1"}, {"__force_mirroring__": "true"}])
def test_marked_nodes_run_again_and_kept_ones_do_not(spelling: dict[str, str]) -> None:
    found = plan(small(spelling), SHAPES)
    assert found.memory == "mirror"
    ran = again(found)
    assert {"fc1", "act1", "drop2", "fc5", "act6"} <= ran
    assert not ran & {"act3", "act7", "classes", "softmax"}
    assert found.planned_bytes < plan(small(), SHAPES).planned_bytes
    assert not again(plan(small(), SHAPES)) and plan(small(), SHAPES).memory == "plain"


def test_marks_set_on_a_finished_symbol_count() -> None:
    symbol = small()
    internals = symbol.get_internals()
    for name in internals.list_outputs():
        internals[name]._set_attr(force_mirroring="False" if name in ("act3_output", "act7_output") else "True")
    assert again(plan(symbol, SHAPES)) == again(plan(small(FORCED), SHAPES))
    assert again(plan(mx.sym.load_json(symbol.tojson()), SHAPES)) == again(plan(small(FORCED), SHAPES))


def test_a_view_that_is_kept_keeps_the_value_it_shows() -> None:
    def symbol(view: dict[str, str] | None) -> mx.sym.Symbol:
        h = mx.sym.Variable("data")
        for k in range(8):
            h = mx.sym.FullyConnected(h, num_hidden=32, name=f"fc{k}", attr=FORCED)
            h = mx.sym.Activation(h, act_type="tanh", name=f"act{k}", attr=FORCED)
            if k == 3:
                h = mx.sym.Reshape(h, shape=(-1, 4, 8), name="view", attr=view)
        return mx.sym.MakeLoss(mx.sym.sum(h), name="loss")
    assert "act3" in again(plan(symbol(FORCED), SHAPES))
    assert "act3" not in again(plan(symbol({"force_mirroring": "False"}), SHAPES))


def test_the_environment_runs_cheap_nodes_again_unless_they_say_no(monkeypatch: pytest.MonkeyPatch) -> None:
    def symbol(attr: dict[str, str] | None = None) -> mx.sym.Symbol:
        h = mx.sym.Variable("data")
        for k in range(8):
            h = mx.sym.FullyConnected(h, num_hidden=32, name=f"fc{k}")
            for act in ("tanh", "sigmoid", "softsign"):
                h = mx.sym.Activation(h, act_type=act, name=f"{act}{k}", attr=attr)
        return mx.sym.MakeLoss(mx.sym.sum(h), name="loss")
    assert not again(plan(symbol(), SHAPES))
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "1")
    ran = again(plan(symbol(), SHAPES))
    assert {f"{act}{k}" for act in ("tanh", "sigmoid", "softsign") for k in range(6)} <= ran
    assert not any(name.startswith("fc") for name in ran)
    assert not again(plan(symbol({"force_mirroring": "False"}), SHAPES))
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "perhaps")
    with pytest.raises(MXNetError, match="MXNET_BACKWARD_DO_MIRROR='perhaps'; it must be 1 or 0"):
        plan(symbol(), SHAPES)


def test_mirror_stages_alone_ask_for_nothing() -> None:
    assert plan(small({"mirror_stage": "True"}, keep=()), SHAPES).memory == "plain"


def test_a_mark_that_is_no_truth_is_refused_with_its_node() -> None:
    with pytest.raises(MXNetError, match="FullyConnected fc0: force_mirroring='maybe' must be True or False"):
        plan(small({"force_mirroring": "maybe"}), SHAPES)


def trained(symbol: mx.sym.Symbol, **options: Any) -> dict[str, bytes]:
    """Parameters and outputs of a module after three steps."""
    mx.random.seed(3)
    module = mx.mod.Module(symbol, context=mx.cpu(), **options)
    module.bind(data_shapes=[("data", (16, 8))], label_shapes=[("softmax_label", (16,))])
    rng = np.random.default_rng(0)
    arguments = dict(zip(symbol.list_arguments(), symbol.infer_shape(**SHAPES)[0], strict=True))
    module.init_params(arg_params={name: mx.nd.array(rng.normal(0, 0.4, shape)) for name, shape in arguments.items()
                                   if name not in ("data", "softmax_label")}, force_init=True)
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    for _ in range(3):
        batch = mx.io.DataBatch([mx.nd.array(rng.normal(size=(16, 8)))], [mx.nd.array(rng.integers(0, 4, 16))])
        module.forward_backward(batch)
        module.update()
    found = {name: value.asnumpy().tobytes() for name, value in module.get_params()[0].items()}
    return {**found, "output": module.get_outputs()[0].asnumpy().tobytes()}


def test_marks_change_no_bit_of_training_by_a_module() -> None:
    assert trained(small(FORCED)) == trained(small())


def test_marks_change_no_bit_of_an_executor_that_looks_for_differences() -> None:
    executor = small(FORCED).simple_bind(mx.cpu(), data=(16, 8), softmax_label=(16,))
    rng = np.random.default_rng(0)
    for value in executor.arg_dict.values():
        value[:] = rng.normal(0, 0.4, value.shape)
    executor.arg_dict["softmax_label"][:] = rng.integers(0, 4, 16)
    executor.forward(is_train=True)
    executor.backward()
    assert executor.plan.memory == "mirror" and again(executor.plan)
    executor.check_modes("naive")
    larger = executor.reshape(data=(32, 8), softmax_label=(32,), allow_up_sizing=True)
    larger.forward(is_train=True)
    assert larger.plan.memory == "mirror"


@pytest.mark.parametrize("options", [{"memory": "plain"}, {"memory": "sublinear"}, {"budget": "1GiB"}])
def test_another_choice_of_memory_says_that_it_does_not_look_at_marks(options: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="the network is marked with force_mirroring.*does not look at marks"):
        small(FORCED).simple_bind(mx.cpu(), data=(16, 8), softmax_label=(16,), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small().simple_bind(mx.cpu(), data=(16, 8), softmax_label=(16,), **options)


def test_the_command_line_goes_by_marks_and_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small(FORCED).save(str(tmp_path / "net-symbol.json"))
    network = [str(tmp_path / "net-symbol.json"), "--shape", "data=16,8"]
    assert cli.main(["plan", *network]) == 0
    shown = capsys.readouterr()
    assert "recomputed" in shown.out and "at the plain plan's peak" in shown.out and not shown.err
    assert cli.main(["explain", *network, "--max-lines", "0"]) == 0
    shown = capsys.readouterr()
    assert "# act3, forward, marked to be kept" in shown.out and "# act4, forward, marked to run again" in shown.out
    assert cli.main(["plan", *network, "--memory", "sublinear"]) == 0
    assert "does not look at marks" in capsys.readouterr().err
