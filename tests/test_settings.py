"""What optimizers, initializers, schedules, iterators and modules cannot be made with is told by name and value."""
from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.settings import is_number, whole_number

NO_NUMBERS = ("", "None", "0.1", float("nan"), b"x", (1, 2), [], {}, object(), np.ones(2), lambda: 1)
MADE = [(getattr(module, name), given) for module, name, given in (
    *((mx.optimizer, name, {}) for name in ("SGD", "NAG", "Adam", "AdaGrad", "RMSProp", "AdaDelta", "Ftrl", "Adamax",
                                            "Nadam", "Signum", "LAMB", "LARS", "FTML")),
    *((mx.init, name, {}) for name in ("Uniform", "Normal", "Orthogonal", "Xavier", "MSRAPrelu", "LSTMBias")),
    (mx.lr_scheduler, "FactorScheduler", {"step": 2}), (mx.lr_scheduler, "MultiFactorScheduler", {"step": [2, 3]}),
    (mx.lr_scheduler, "PolyScheduler", {"max_update": 5}), (mx.lr_scheduler, "CosineScheduler", {"max_update": 5}))]


@pytest.mark.parametrize("cls, given", MADE, ids=lambda each: getattr(each, "__name__", ""))
def test_what_is_no_number_is_refused_by_name_and_value(cls: Any, given: dict[str, Any]) -> None:
    annotated = {name: p.annotation for name, p in signature(cls).parameters.items()}
    numbers = [name for name, kind in annotated.items() if kind in ("float", "int", "float | None", "int | None")]
    assert numbers
    for name in numbers:
        for value in (*NO_NUMBERS, *(() if "None" in annotated[name] else (None,))):
            with pytest.raises(MXNetError, match=f"{cls.__name__}: {name} is .*; it must be a number"):
                cls(**{**given, name: value})
        cls(**given)


@pytest.mark.parametrize("name", ["learning_rate", "wd", "rescale_grad", "clip_gradient"])
def test_numbers_that_every_optimizer_takes_are_checked_in_each(name: str) -> None:
    for optimizer in ("sgd", "adam", "ftrl"):
        with pytest.raises(MXNetError, match=f"{name} is 'x'; it must be a number"):
            mx.optimizer.create(optimizer, **{name: "x"})


def test_numbers_of_any_kind_are_numbers() -> None:
    for value in (1, 0.5, np.float32(2), np.int64(3), np.array(4.0), True, float("inf"), -1):
        assert is_number(value)
        mx.init.Uniform(value)
    values = mx.nd.zeros((50, 4))
    mx.init.Uniform(-0.5)(mx.init.InitDesc("fc_weight"), values)
    assert 0.3 < np.abs(values.asnumpy()).max() <= 0.5


@pytest.mark.parametrize("value", [None, "2", 1.5, -1, True, float("nan"), float("inf"), [2], np.ones(2)])
def test_a_count_is_a_whole_number(value: Any) -> None:
    with pytest.raises(MXNetError, match=r"it: n is .*; it must be a whole number of 0 or more"):
        whole_number("it", "n", value, 0)
    assert whole_number("it", "n", 2.0, 0) == whole_number("it", "n", np.int32(2), 0) == 2


NET = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc"), name="softmax")


@pytest.mark.parametrize("make, told", [
    (lambda: mx.io.NDArrayIter(np.ones((4, 2)), batch_size="2"), "NDArrayIter: batch_size is '2'"),
    (lambda: mx.io.NDArrayIter(np.ones((4, 2)), batch_size=None), "NDArrayIter: batch_size is None"),
    (lambda: mx.io.ResizeIter(None, 2), "ResizeIter: data_iter is None"),
    (lambda: mx.io.ResizeIter(mx.io.NDArrayIter(np.ones(4)), "2"), "ResizeIter: size is '2'"),
    (lambda: mx.callback.do_checkpoint("net", None), "period is None"),
    (lambda: mx.mod.Module(None), "symbol=None is no symbol"),
    (lambda: mx.mod.Module(NET, data_names="data"), r"data_names='data' must be a list of names, such as \['data'\]"),
    (lambda: mx.mod.Module(NET, label_names=7), "label_names=7 must be a list of names"),
    (lambda: mx.mod.Module(NET, fixed_param_names=[None]), r"fixed_param_names=\[None\] must be a list of names"),
    (lambda: mx.mod.Module(NET, context=3), r"context=3 is no context"),
    (lambda: NET.simple_bind(mx.cpu(), data=(4, 3), grad_req=None), "grad_req=None must be write, add or null"),
    (lambda: mx.init.Constant("x"), "Constant: value is 'x'"),
    (lambda: mx.init.Xavier(magnitude=-1), "Xavier: magnitude is -1"),
    (lambda: mx.lr_scheduler.MultiFactorScheduler(step=5), "MultiFactorScheduler: step is 5; it must be a list"),
    (lambda: mx.lr_scheduler.MultiFactorScheduler(step=["1"]), "MultiFactorScheduler: step is .*; it must be a list")])
def test_what_else_does_not_fit_is_told(make: Any, told: str) -> None:
    with pytest.raises(MXNetError, match=told):
        make()
