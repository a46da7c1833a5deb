"""Operators in Python by MXNet's custom interface: values, every memory mode, states, what is lent, and misuse."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.device.cuda.launch import kernel_op
from minigraph.ops import python_op

from .training import batches, everything, prepared


@pytest.fixture(autouse=True)
def forget():
    """Operators that a test registers are gone after it."""
    tables = python_op._makers, python_op._versions, python_op._made
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def register(name, op, **members):
    """A CustomOpProp with these members under a name."""
    members.setdefault("create_operator", lambda self, ctx, shapes, dtypes: op())
    return mx.operator.register(name)(type("Prop", (mx.operator.CustomOpProp,), members))


class Softmax(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        x = in_data[0].asnumpy()
        y = np.exp(x - x.max(axis=1, keepdims=True))
        self.assign(out_data[0], req[0], mx.nd.array(y / y.sum(axis=1, keepdims=True)))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        assert out_grad == [None]
        y, label = out_data[0].asnumpy(), in_data[1].asnumpy().astype(int)
        y[np.arange(len(label)), label] -= 1
        self.assign(in_grad[0], req[0], mx.nd.array(y))
        in_grad[1][:] = 0


def register_softmax():
    register("softmax", Softmax, __init__=lambda self: mx.operator.CustomOpProp.__init__(self, need_top_grad=False),
             list_arguments=lambda self: ["data", "label"],
             infer_shape=lambda self, shapes: ([shapes[0], (shapes[0][0],)], [shapes[0]], []))


def classifier(custom):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="fc1")
    net = mx.sym.Dropout(mx.sym.Activation(net, act_type="relu"), p=0.3)
    net = mx.sym.FullyConnected(net, num_hidden=2, name="fc2")
    if custom:
        return mx.sym.Custom(net, op_type="softmax", name="softmax")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def trained(custom, **options):
    module = prepared(classifier(custom), **options)
    for batch in batches(3):
        module.training_step()(batch)
    return everything(module)


def test_a_loss_in_python_trains_as_the_operator_does():
    register_softmax()
    assert classifier(True).list_arguments() == classifier(False).list_arguments()
    expected = trained(False)
    for name, value in trained(True).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("options", [{"memory": "sublinear"}, {"memory": "naive"}, {"memory": "superneurons"},
                                     {"memory": "auto", "budget": "5KB", "host_budget": "1MB"}], ids=str)
def test_no_memory_mode_changes_a_bit(options):
    register_softmax()
    plain, found = trained(True), trained(True, **options)
    assert all(value.tobytes() == found[name].tobytes() for name, value in plain.items())


class Square(mx.operator.CustomOp):
    """It keeps its input, and counts."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, is_train, req, in_data, out_data, aux):
        self.calls += 1
        self.kept = in_data[0].copy()
        self.assign(out_data[0], req[0], in_data[0] * in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        assert in_data == [None] and out_data == [None]
        self.assign(in_grad[0], req[0], 2 * self.kept * out_grad[0])


def register_square(made, **members):
    def create(self, ctx, shapes, dtypes):
        made.append((Square(), shapes, dtypes, ctx))
        return made[-1][0]

    register("square", None, create_operator=create,
             declare_backward_dependency=lambda self, heads, ins, outs: list(heads), **members)


def test_each_node_has_an_object_that_keeps_what_it_likes_from_forward_to_backward():
    made = []
    register_square(made)
    x = mx.sym.Variable("x")
    net = mx.sym.Custom(mx.sym.Custom(x, op_type="square", name="a"), op_type="square", name="b")
    exes = [net.simple_bind(mx.cpu(), x=(3,)) for _ in range(2)]
    for exe, value in zip(exes, (2.0, 3.0), strict=True):
        exe.arg_dict["x"][:] = value
        exe.forward(is_train=True)
    for exe, value in zip(exes, (2.0, 3.0), strict=True):
        exe.backward(mx.nd.ones(3))
        np.testing.assert_allclose(exe.grad_dict["x"].asnumpy(), 4 * value ** 3)
    exes[0].forward(is_train=False)
    assert len(made) == 4 and sorted(each[0].calls for each in made) == [1, 1, 2, 2]
    assert made[0][1:] == ([[3]], [np.float32], mx.cpu())


def test_gradients_that_are_added_and_several_readers_are_right():
    register_square([])
    x = mx.sym.Variable("x")
    y = mx.sym.Custom(x, op_type="square", name="sq")
    exe = (y * x + y).simple_bind(mx.cpu(), grad_req="add", x=(2,))
    exe.arg_dict["x"][:], exe.grad_dict["x"][:] = [1, -2], 10
    exe.forward(is_train=True)
    exe.backward(mx.nd.ones(2))
    np.testing.assert_allclose(exe.grad_dict["x"].asnumpy(), [10 + 3 + 2, 10 + 12 - 4])
    assert exe.check_modes().programs


def test_modes_agree_with_objects_that_keep_something():
    register_softmax()
    register_square([])
    net = mx.sym.Custom(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc"), op_type="square",
                        name="sq")
    exe = mx.sym.Custom(net, op_type="softmax", name="softmax").simple_bind(mx.cpu(), data=(4, 5))
    assert "train" in exe.check_modes(other="sublinear").programs


def test_a_class_may_say_that_it_runs_again_to_save_memory():
    found = {}
    for recompute in ("never", "costly"):
        made = []

        class Root(mx.operator.CustomOp):
            def __init__(self, made=made):
                made.append(self)
                self.calls = 0

            def forward(self, is_train, req, in_data, out_data, aux):
                self.calls += 1
                self.assign(out_data[0], req[0], in_data[0] ** 0.5)

            def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
                self.assign(in_grad[0], req[0], out_grad[0] / (2 * out_data[0]))

        register("root", Root, recompute=recompute)
        net = mx.sym.Variable("x")
        for k in range(8):
            net = mx.sym.Custom(0.5 * net, op_type="root", name=f"root{k}")
        exe = net.simple_bind(mx.cpu(), x=(64, 64), memory="sublinear")
        exe.arg_dict["x"][:] = np.random.RandomState(0).rand(64, 64) + 1.5
        exe.forward(is_train=True)
        exe.backward(mx.nd.ones((64, 64)))
        found[recompute] = exe.grad_dict["x"].asnumpy().tobytes(), max(op.calls for op in made)
    assert found["never"][0] == found["costly"][0]
    assert found["never"][1] == 1 and found["costly"][1] > 1


class Mean(mx.operator.CustomOp):
    """data less its moving mean, which forward moves in training."""

    def __init__(self, momentum):
        super().__init__()
        self.momentum = momentum

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] - aux[0])
        self.assign(out_data[1], req[1], in_data[0] * 2)
        if is_train:
            aux[0][:] = self.momentum * aux[0] + (1 - self.momentum) * in_data[0].asnumpy().mean()

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] + 2 * out_grad[1] + aux[0])


def register_mean():
    def create(self, ctx, shapes, dtypes):
        return Mean(float(self.momentum))

    register("mean", None, create_operator=create, __init__=lambda self, momentum, unused=None: (
        mx.operator.CustomOpProp.__init__(self), setattr(self, "momentum", momentum))[0],
        list_outputs=lambda self: ["centered", "twice"], list_auxiliary_states=lambda self: ["moving_mean"],
        infer_shape=lambda self, shapes: (shapes, [shapes[0]] * 2, [(1,)]))


def test_outputs_arguments_and_auxiliary_states_are_those_of_the_class():
    register_mean()
    net = mx.sym.Custom(mx.sym.Variable("x"), op_type="mean", momentum=0.5, unused="text", name="m")
    assert net.list_outputs() == ["m_centered", "m_twice"] and net.list_auxiliary_states() == ["m_moving_mean"]
    again = mx.sym.load_json(net.tojson())
    assert again.tojson() == net.tojson() and again.infer_shape(x=(2, 3))[1:] == ([(2, 3)] * 2, [(1,)])
    exe = again.simple_bind(mx.cpu(), x=(2,))
    exe.arg_dict["x"][:] = [1, 3]
    exe.aux_dict["m_moving_mean"][:] = 4
    for is_train, mean in ((True, 4), (False, 3), (True, 3)):
        outputs = exe.forward(is_train=is_train)
        np.testing.assert_allclose(outputs[0].asnumpy(), [1 - mean, 3 - mean])
    assert exe.aux_dict["m_moving_mean"].asnumpy() == [2.5]
    exe.backward([mx.nd.ones(2), mx.nd.array([10, 20])])
    np.testing.assert_allclose(exe.grad_dict["x"].asnumpy(), [23.5, 43.5])


def test_only_an_output_that_has_a_reader_may_have_a_gradient():
    register_mean()
    net = mx.sym.Custom(mx.sym.Variable("x"), op_type="mean", momentum=0.5, name="m")[1]
    exe = net.simple_bind(mx.cpu(), x=(2,))
    exe.forward(is_train=True)
    exe.backward(mx.nd.ones(2))
    np.testing.assert_allclose(exe.grad_dict["x"].asnumpy(), [2, 2])


def test_arrays_run_operators_in_python_too():
    made = []
    register_square(made)
    for value in (2.0, 3.0):
        assert mx.nd.Custom(mx.nd.full(3, value), op_type="square").asnumpy().tolist() == [value ** 2] * 3
    assert [each[0].calls for each in made] == [1, 1]


def test_types_are_asked_of_the_class():
    class Rank(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            out_data[0][:] = in_data[0].asnumpy().argsort().argsort()

    register("rank", Rank, infer_type=lambda self, types: (types, [np.int32], []))
    net = mx.sym.Custom(mx.sym.Variable("x"), op_type="rank", name="r")
    assert net.infer_type(x="float32")[1] == [np.int32]
    exe = net.simple_bind(mx.cpu(), grad_req="null", x=(3,))
    exe.arg_dict["x"][:] = [0.5, -1, 2]
    found = exe.forward()[0]
    assert found.dtype == np.int32 and found.asnumpy().tolist() == [1, 0, 2]


def test_a_name_that_is_registered_again_means_the_new_class():
    results = []
    for factor in (2, 3):
        class Times(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux, factor=factor):
                self.assign(out_data[0], req[0], in_data[0] * factor)

        register("times", Times)
        exe = mx.sym.Custom(mx.sym.Variable("x"), op_type="times", name="t").simple_bind(mx.cpu(), x=(1,))
        exe.arg_dict["x"][:] = 1
        results.append(exe.forward()[0].asscalar())
    assert results == [2, 3]


# -- misuse --------------------------------------------------------------------------------------------------
def bound(op, **members):
    register("faulty", op, **members)
    return mx.sym.Custom(mx.sym.Variable("x"), op_type="faulty", name="node").simple_bind(mx.cpu(), x=(2,))


def op_with(**members):
    return type("Op", (mx.operator.CustomOp,), members)


def test_errors_name_node_operator_and_member_and_keep_their_cause():
    def forward(self, is_train, req, in_data, out_data, aux):
        raise KeyError("here")

    with pytest.raises(MXNetError, match=r"node node.*: forward of 'faulty' raised KeyError: 'here'") as caught:
        bound(op_with(forward=forward)).forward()
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(MXNetError, match="create_operator of 'faulty' raised NotImplementedError: Prop must define"):
        bound(None, create_operator=mx.operator.CustomOpProp.create_operator).forward()
    with pytest.raises(MXNetError, match=r"node node: infer_shape of 'faulty' raised ValueError.*of 1, 1, 0"):
        bound(None, infer_shape=lambda self, shapes: (shapes, [], []))
    with pytest.raises(MXNetError, match="list_outputs of 'faulty' raised TypeError: names are a list"):
        bound(None, list_outputs=lambda self: "output")
    with pytest.raises(MXNetError, match="__init__ of 'faulty' raised TypeError"):
        bound(None, __init__=lambda self, needed: None)
    exe = bound(op_with(forward=lambda self, is_train, req, in_data, out_data, aux: None))
    exe.forward(is_train=True)
    with pytest.raises(MXNetError, match="backward of 'faulty' raised NotImplementedError: Op must define backward"):
        exe.backward(mx.nd.ones(2))


def test_arrays_are_lent_for_one_call_and_inputs_are_only_read():
    kept = []

    def keeps(self, is_train, req, in_data, out_data, aux):
        kept.extend([in_data[0], in_data[0][0:1], out_data[0].reshape((1, 2))])
        out_data[0][0:1] = 5
        out_data[0][1] = 6

    exe = bound(op_with(forward=keeps))
    assert exe.forward()[0].asnumpy().tolist() == [5, 6]
    for array in kept:
        with pytest.raises(MXNetError, match="lent for one call"):
            array.asnumpy()

    def writes(self, is_train, req, in_data, out_data, aux):
        in_data[0][:] = 0

    with pytest.raises(MXNetError, match="only to be read"):
        bound(op_with(forward=writes)).forward()


def test_what_is_not_registered_or_no_class_is_told():
    with pytest.raises(MXNetError, match="op_type='nobody' is not registered.*mx.operator.register"):
        mx.sym.Custom(mx.sym.Variable("x"), op_type="nobody", name="node")
    with pytest.raises(MXNetError, match="op_type"):
        mx.sym.Custom(mx.sym.Variable("x"), name="node")
    with pytest.raises(TypeError, match="derived from mx.operator.CustomOpProp"):
        mx.operator.register("one")(int)
    with pytest.raises(MXNetError, match="does not begin with _"):
        mx.operator.register("_one")
    with pytest.raises(MXNetError, match="recompute is 'sometimes'"):
        register("one", None, recompute="sometimes")
    with pytest.raises(MXNetError, match="req='writ'"):
        mx.operator.CustomOp().assign(mx.nd.ones(1), "writ", 0)


def test_a_gpu_refuses_it_by_name():
    with pytest.raises(MXNetError, match="_custom"):
        kernel_op("_custom")


# -- the interface before ------------------------------------------------------------------------------------
@pytest.mark.parametrize("base, numbers", [("NumpyOp", lambda array: array), ("NDArrayOp", lambda a: a.asnumpy())])
def test_an_object_of_the_older_interface_is_an_operator(base, numbers):
    class Softmax(getattr(mx.operator, base)):
        def __init__(self):
            super().__init__(need_top_grad=False)

        def list_arguments(self):
            return ["data", "label"]

        def infer_shape(self, in_shape):
            return [in_shape[0], (in_shape[0][0],)], [in_shape[0]]

        def forward(self, in_data, out_data):
            y = np.exp(numbers(in_data[0]) - numbers(in_data[0]).max(axis=1, keepdims=True))
            out_data[0][:] = y / y.sum(axis=1, keepdims=True)

        def backward(self, out_grad, in_data, out_data, in_grad):
            y = np.array(numbers(out_data[0]))
            y[np.arange(len(y)), numbers(in_data[1]).astype(int)] -= 1
            in_grad[0][:] = y

    with pytest.warns(UserWarning, match="Please use CustomOp"):
        softmax = Softmax()
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    found = []
    for net_with_loss in (softmax(data=net, name="softmax"), mx.sym.SoftmaxOutput(net, name="softmax")):
        module = prepared(net_with_loss)
        for batch in batches(2):
            module.training_step()(batch)
        found.append(everything(module))
    for name, value in found[1].items():
        np.testing.assert_allclose(found[0][name], value, rtol=1e-5, atol=1e-7)
