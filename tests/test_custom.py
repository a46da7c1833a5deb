"""Operators of one's own: registered in a few lines, they work in symbols, gradients, plans and every memory mode."""
from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.device.cuda.launch import kernel_op
from minigraph.ops import registry
from minigraph.symbol import functions


@pytest.fixture(autouse=True)
def forget():
    """Operators that a test registers are gone after it."""
    before = dict(registry._OPS), dict(registry._ALIASES)
    yield
    for held, kept in zip((registry._OPS, registry._ALIASES), before, strict=True):
        held.clear()
        held.update(kept)
    for name in set(functions._functions) - {*registry._OPS, *registry._ALIASES}:
        del functions._functions[name]


def register_cube():
    @mx.register
    class Cube(mx.Op):
        """data ** 3, in place."""

        name = "cube"
        aliases = ("Cube",)

        def compute(self, p, ins, outs, work):
            np.power(ins[0], 3, out=outs[0])

        def gradient(self, b, p, ins, outs, grads, wanted):
            square = b.node("elemwise_mul", [ins[0], ins[0]])[0]
            slope = b.node("_mul_scalar", [square], scalar=3.0)[0]
            return [b.node("elemwise_mul", [grads[0], slope])[0]]

        def inplace(self, p):
            return ((0, 0),)

    return Cube


def register_window():
    """An operator with a parameter, another shape, scratch, and a backward operator of its own."""
    @dataclasses.dataclass(frozen=True)
    class WindowParams:
        size: int = mx.param(mx.REQUIRED, "int", "rows in a sum")

    class Window(mx.Op):
        Params = WindowParams

        def algorithms(self, p, ins, outs):
            return (dataclasses.replace(super().algorithms(p, ins, outs)[0], workspace_bytes=ins[0].nbytes),)

    @mx.register
    class Forward(Window):
        """Sums of `size` neighbouring elements of a vector."""

        name = "window_sum"

        def infer_shape(self, p, ins, outs):
            shape = ins[0]
            return [shape], [None if shape is None or shape[0] is None else (shape[0] - p.size + 1,)]

        def compute(self, p, ins, outs, work):
            copy = work.array(ins[0].shape, ins[0].dtype)
            np.copyto(copy, ins[0])
            outs[0][:] = 0
            for k in range(p.size):
                outs[0] += copy[k:len(copy) - p.size + 1 + k]

        def gradient(self, b, p, ins, outs, grads, wanted):
            return [b.node("_window_sum_backward", [grads[0]], size=p.size)[0]]

    @mx.register
    class Backward(Window):
        name = "_window_sum_backward"

        def infer_shape(self, p, ins, outs):
            return ins, [None if ins[0] is None else (ins[0][0] + p.size - 1,)]

        def compute(self, p, ins, outs, work):
            outs[0][:] = 0
            for k in range(p.size):
                outs[0][k:k + len(ins[0])] += ins[0]

    return Forward


@pytest.mark.parametrize("memory", ["plain", "inplace", "naive", "sublinear", "auto"])
def test_an_operator_trains_in_every_memory_mode(memory):
    register_cube()
    x = mx.sym.Variable("x")
    net = 2 * mx.sym.cube(mx.sym.Cube(x * 1, name="inner"))
    exe = net.simple_bind(mx.cpu(), x=(3,), memory=memory, poison=True)
    exe.arg_dict["x"][:] = [1, -2, 0.5]
    np.testing.assert_allclose(exe.forward(is_train=True)[0].asnumpy(), 2 * np.power([1, -2, 0.5], 9))
    exe.backward(np.ones(3))
    np.testing.assert_allclose(exe.grad_dict["x"].asnumpy(), 18 * np.power([1, -2, 0.5], 8))


def register_remembering_tanh():
    @mx.register
    class Tanh(mx.Op):
        """tanh, with its last outputs in an auxiliary state that is not read, of a name that initializers know."""

        name = "remembering_tanh"
        recompute = "never"

        def inputs(self, p):
            return ("data", "last_max")

        def aux(self, p):
            return ("last_max",)

        def outputs(self, p):
            return ("output", "last_max")

        def visible_outputs(self, p):
            return 1

        def mutates(self, p):
            return ((1, 1),)

        def unread(self, p):
            return (1,)

        def compute(self, p, ins, outs, work):
            np.tanh(ins[0], out=outs[0])
            np.copyto(outs[1], outs[0])

        def gradient(self, b, p, ins, outs, grads, wanted):
            return [b.node("_activation_backward", (grads[0], outs[0]), act_type="tanh")[0], None]


def test_a_state_that_is_written_and_never_read_may_be_at_home_outside_the_device():
    register_remembering_tanh()
    net = mx.sym.Variable("data")
    for k in range(6):
        net = mx.sym.remembering_tanh(mx.sym.FullyConnected(net, num_hidden=64, name=f"fc{k}"), name=f"tanh{k}")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="last"), name="softmax")
    found = []
    for options in ({}, {"budget": "60KiB", "host_budget": "1MB"}):
        mod = mx.mod.Module(net, poison=True, **options)
        mod.bind([("data", (4, 64))], [("softmax_label", (4,))])
        mx.random.seed(0)
        mod.init_params(mx.init.Xavier())
        mod.init_optimizer(optimizer_params={"momentum": 0.9, "learning_rate": 0.1})
        for _ in range(2):
            mod.training_step()(mx.io.DataBatch([mx.nd.array(np.ones((4, 64)))], [mx.nd.array(np.zeros(4))]))
        found.append({name: array.asnumpy().tobytes() for part in mod.get_params() for name, array in part.items()})
    assert mod._executor.group.layout.away and found[0] == found[1]


def test_an_operator_is_planned_like_every_other():
    register_cube()
    exe = mx.sym.cube(mx.sym.cube(mx.sym.Variable("x") * 1)).simple_bind(mx.cpu(), x=(1000,))
    plan = exe.program("eval").plan
    assert [i.op for i in plan].count("cube") == 2
    assert len({plan.buffer(b).offset for i in plan for b in i.writes}) == 1, "it works in place"


def test_an_operator_with_parameters_scratch_and_a_backward_operator_of_its_own():
    register_window()
    symbol = mx.sym.window_sum(mx.sym.Variable("x"), size=3, name="w")
    mx.test_utils.check_symbolic_forward(symbol, [np.arange(6.0)], [[3, 6, 9, 12]])
    mx.test_utils.check_numeric_gradient(symbol, [np.arange(6.0)])
    assert symbol.list_outputs() == ["w_output"]
    with pytest.raises(MXNetError, match="'size'"):
        mx.sym.window_sum(mx.sym.Variable("x"))


def test_symbols_of_an_operator_are_saved_and_loaded():
    register_cube()
    symbol = mx.sym.cube(mx.sym.Variable("x"), name="c")
    again = mx.sym.load_json(symbol.tojson())
    assert again.list_outputs() == ["c_output"] and again.tojson() == symbol.tojson()


def test_without_a_gradient_only_gradients_are_refused():
    @mx.register
    class Floor(mx.Op):
        name = "my_floor"

        def compute(self, p, ins, outs, work):
            np.floor(ins[0], out=outs[0])

    exe = mx.sym.my_floor(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(2,))
    exe.arg_dict["x"][:] = [1.5, -0.5]
    assert exe.forward()[0].asnumpy().tolist() == [1, -1]
    with pytest.raises(MXNetError, match="my_floor has no gradient"):
        exe.forward(is_train=True)


def test_without_a_kernel_the_gpu_is_refused_by_name():
    register_cube()
    with pytest.raises(MXNetError, match=r"operator cube has no CUDA kernel; run this network on mx.cpu\(\)"):
        kernel_op("cube")


@pytest.mark.parametrize("found", [None, ([(2,)],), ([(2,)], [(3,), (4,)]), ([], [(2,)])])
def test_an_inference_of_other_than_all_inputs_and_outputs_is_told_with_what_it_must_return(found):
    @mx.register
    class Wrong(mx.Op):
        name = "wrong_inference"

        def infer_shape(self, p, ins, outs):
            return found

        def compute(self, p, ins, outs, work):
            outs[0][...] = ins[0]

    with pytest.raises(MXNetError, match="wrong_inference.*: infer_shape .* for its 1 inputs and one for its 1 out"):
        mx.sym.wrong_inference(mx.sym.Variable("a")).simple_bind(mx.cpu(), a=(2,))


def test_what_is_wrong_with_a_class_is_said():
    def made(**members):
        return type("Made", (mx.Op,), {"compute": lambda *given: None, **members})

    register_cube()
    with pytest.raises(TypeError, match="derived from minigraph.Op"):
        mx.register(int)
    for cls, message in ((made(name="cube"), "'cube' of Made is taken"), (made(), "needs a name"),
                         (made(name="a b"), "identifier, got 'a b'"), (made(name="my", aliases=("1x",)), "got '1x'"),
                         (type("Idle", (mx.Op,), {"name": "idle"}), "idle defines no compute"),
                         (made(name="my", Params=dict), "frozen dataclass"),
                         (made(name="my", Params=dataclasses.make_dataclass("P", [("k", int)], frozen=True)),
                          "parameter 'k' must be declared")):
        with pytest.raises(MXNetError, match=message):
            mx.register(cls)
    with pytest.raises(AttributeError):
        _ = mx.sym.idle
