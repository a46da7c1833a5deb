"""Cases in which other frameworks went wrong: shapes that were not given, empty batches, long unrolled networks,
parameters that must not move, a smaller last batch."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.planning import plan
from tests.recurrent import lstm
from tests.training import batches, module, samples

modes = pytest.mark.parametrize("memory", ["plain", "inplace", "naive"])


def classifier(fix_gamma=False):
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, pad=(1, 1), name="conv")
    net = mx.sym.BatchNorm(net, fix_gamma=fix_gamma, name="bn")
    net = mx.sym.Activation(net, act_type="relu", name="relu")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="fc"), name="softmax")


# -- shapes that the planner was not given -------------------------------------------------------------------
def test_planning_without_the_shape_of_the_data_names_the_data():
    for bind in (lambda: plan(classifier(), {}), lambda: classifier().simple_bind(mx.cpu()),
                 lambda: plan(classifier(), {"softmax_label": (2,)})):
        with pytest.raises(MXNetError, match="cannot bind.* leave these unknown: data"):
            bind()


def test_the_label_is_inferred_from_the_data():
    made = plan(classifier(), {"data": (2, 3, 8, 8)}, "sgd")
    assert made.buffers.shape[made.inputs["softmax_label"]] == (2,)


@modes
def test_a_scalar_a_vector_and_a_state_are_known_and_planned(memory):
    scalar = mx.sym.Variable("scalar")
    loss = mx.sym.MakeLoss(mx.sym.square(scalar * 3), name="loss")
    exe = mx.sym.Group([loss, classifier()]).simple_bind(mx.cpu(), scalar=(), data=(2, 3, 8, 8), memory=memory,
                                                         poison=True)
    exe.arg_dict["scalar"][:] = 2
    exe.arg_dict["fc_bias"][:] = [1, 2, 3]
    found = exe.forward(is_train=True)
    exe.backward()
    assert found[0].shape == () and found[0].asscalar() == 36
    assert exe.grad_dict["scalar"].asscalar() == 36
    assert exe.grad_dict["fc_bias"].shape == (3,) and exe.aux_dict["bn_moving_mean"].shape == (4,)
    buffers = exe.plan.buffers
    assert {buffers.bytes[b] for b in range(len(buffers)) if buffers.name[b].startswith("loss")} == {4}


def test_a_shape_that_is_wrong_by_one_names_operator_inputs_and_both_shapes():
    with pytest.raises(MXNetError) as error:
        plan(classifier(), {"data": (2, 3, 8, 8), "fc_weight": (3, 65)})
    for part in ("FullyConnected", "fc", "fc_weight", "(3, 65)", "64"):
        assert part in str(error.value)
    with pytest.raises(MXNetError) as error:
        plan(mx.sym.Variable("a") + mx.sym.Variable("b"), {"a": (2, 3), "b": (2, 4)})
    for part in ("elemwise_add", "(2, 3)", "(2, 4)"):
        assert part in str(error.value)


# -- batches of no rows --------------------------------------------------------------------------------------
@modes
def test_a_batch_of_no_rows_trains_without_a_trace(memory):
    exe = classifier().simple_bind(mx.cpu(), data=(0, 3, 8, 8), memory=memory, poison=True)
    for array in exe.arg_arrays:
        array[:] = 2
    exe.aux_dict["bn_moving_mean"][:] = [1, 2, 3, 4]
    exe.aux_dict["bn_moving_var"][:] = 5
    out = exe.forward(is_train=True)[0]
    exe.backward()
    assert out.shape == (0, 3) and exe.grad_dict["data"].shape == (0, 3, 8, 8)
    for name, gradient in exe.grad_dict.items():
        assert not gradient.asnumpy().any(), name
    assert exe.aux_dict["bn_moving_mean"].asnumpy().tolist() == [1, 2, 3, 4]
    assert exe.aux_dict["bn_moving_var"].asnumpy().tolist() == [5] * 4
    assert exe.forward()[0].shape == (0, 3)


def test_a_module_trains_on_rows_after_a_batch_of_none():
    mod = mx.mod.Module(classifier(), poison=True)
    mod.bind([("data", (4, 3, 8, 8))], [("softmax_label", (4,))])
    mod.init_params(mx.init.Xavier())
    mod.init_optimizer(optimizer_params={"learning_rate": 0.1})
    before = mod.get_params()[0]["fc_weight"].asnumpy()
    step = mod.training_step()
    step(mx.io.DataBatch([mx.nd.zeros((0, 3, 8, 8))], [mx.nd.zeros((0,))]))
    assert np.array_equal(before, mod.get_params()[0]["fc_weight"].asnumpy())
    step(mx.io.DataBatch([mx.nd.ones((4, 3, 8, 8))], [mx.nd.zeros((4,))]))
    after = mod.get_params()[0]["fc_weight"].asnumpy()
    assert np.isfinite(after).all() and not np.array_equal(before, after)


def test_a_zero_in_inference_is_unknown_and_in_binding_a_size():
    with pytest.warns(UserWarning, match="0s in shape means unknown"):
        assert classifier().infer_shape(data=(0, 3, 8, 8)) == (None, None, None)
    assert (mx.sym.Variable("a") + mx.sym.Variable("b")).infer_shape(a=(0, 3), b=(2, 0))[0] == [(2, 3), (2, 3)]
    assert classifier().simple_bind(mx.cpu(), data=(0, 3, 8, 8)).arg_dict["data"].shape == (0, 3, 8, 8)


# -- unrolled networks ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("request_", ["write", "add"])
@pytest.mark.parametrize("lookup", ["none", "once", "each step"])
def test_the_peak_of_an_unrolled_network_grows_by_activations_alone(lookup, request_):
    """A gate weight takes 4 MiB and the embedding 10 MiB; neither may come again at each step."""
    planned = {}
    for length in (16, 64):
        words = {} if lookup == "none" else {"vocabulary": 10000, "lookup_each_step": lookup == "each step"}
        symbol = lstm(length, 512, inputs=512 if lookup == "none" else 256, classes=3, **words)
        data = (1, length, 512) if lookup == "none" else (1, length)
        made = plan(symbol, {"data": data, "h0": (1, 512), "c0": (1, 512)}, grad_req=request_, verify=length == 16)
        planned[length] = made.planned_bytes
    per_step = (planned[64] - planned[16]) / 48
    assert 0 < per_step < 0.2 * 2 ** 20


def test_the_peak_of_256_steps_is_not_above_that_either():
    state = {"h0": (1, 512), "c0": (1, 512)}
    planned = [plan(lstm(length, 512, inputs=512, classes=3), {"data": (1, length, 512), **state},
                    verify=False).planned_bytes for length in (16, 256)]
    assert (planned[1] - planned[0]) / 240 < 0.2 * 2 ** 20


@modes
@pytest.mark.parametrize("request_", ["write", "add"])
def test_gradients_of_an_unrolled_network_are_those_of_pytorch(memory, request_):
    torch = pytest.importorskip("torch")
    length, hidden, inputs, batch = 5, 4, 3, 2
    exe = lstm(length, hidden, inputs=inputs).simple_bind(
        mx.cpu(), request_, memory=memory, poison=True, data=(batch, length, inputs), h0=(batch, hidden),
        c0=(batch, hidden), type_dict={"data": np.float64})
    draw = np.random.RandomState(0)
    for name in sorted(exe.arg_dict):
        exe.arg_dict[name][:] = draw.uniform(-1, 1, exe.arg_dict[name].shape)
        exe.grad_dict[name][:] = 1
    head = draw.randn(batch, hidden)
    out = exe.forward(is_train=True)[0].asnumpy()
    exe.backward(head)
    peer = torch.nn.LSTM(inputs, hidden, batch_first=True, dtype=torch.float64)
    names = {"weight_ih_l0": "lstm_i2h_weight", "weight_hh_l0": "lstm_h2h_weight", "bias_ih_l0": "lstm_i2h_bias",
             "bias_hh_l0": "lstm_h2h_bias"}
    value = {name: torch.tensor(array.asnumpy().astype(np.float64), requires_grad=True)
             for name, array in exe.arg_dict.items()}
    peer.load_state_dict({theirs: value[ours].detach() for theirs, ours in names.items()})
    expected, _ = peer(value["data"], (value["h0"][None], value["c0"][None]))
    np.testing.assert_allclose(out, expected[:, -1].detach(), rtol=1e-5, atol=1e-6)
    (expected[:, -1] * torch.tensor(head)).sum().backward()
    for theirs, ours in names.items():
        wanted = getattr(peer, theirs).grad.numpy() + (request_ == "add")
        np.testing.assert_allclose(exe.grad_dict[ours].asnumpy(), wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(exe.grad_dict["data"].asnumpy(), value["data"].grad.numpy() + (request_ == "add"),
                               rtol=1e-4, atol=1e-5)


# -- parameters that must not move ---------------------------------------------------------------------------
@pytest.mark.parametrize("apart", [False, True], ids=["steps", "forward, backward, update"])
def test_weight_decay_does_not_move_a_fixed_gamma(apart):
    data = mx.sym.BatchNorm(mx.sym.Variable("data"), fix_gamma=True, name="bn")
    mod = module(mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=2, name="fc"), name="softmax"))
    batch = batches(1)[0]
    mod.bind([("data", (8, 6))], [("softmax_label", (8,))])
    mod.init_params(mx.init.Xavier())
    mod.init_optimizer(optimizer_params={"learning_rate": 0.1, "wd": 0.1, "momentum": 0.9})
    step = super(type(mod), mod).training_step() if apart else mod.training_step()
    for _ in range(10):
        step(batch)
        mod.forward(batch, is_train=False)
        outputs = mod.get_outputs()[0].asnumpy()
        assert np.isfinite(outputs).all()
        assert mod.get_params()[0]["bn_gamma"].asnumpy().tolist() == [1] * 6


def test_backward_through_fixed_statistics_scales_by_the_moving_variance():
    data = mx.sym.Variable("data")
    exe = mx.sym.BatchNorm(data, fix_gamma=False, use_global_stats=True, eps=1e-3, name="bn").simple_bind(
        mx.cpu(), data=(4, 3), poison=True)
    draw = np.random.RandomState(0)
    exe.arg_dict["data"][:] = draw.randn(4, 3)
    gamma, var = np.array([1.0, 2.0, -0.5]), np.array([0.5, 1.0, 4.0])
    exe.arg_dict["bn_gamma"][:], exe.aux_dict["bn_moving_var"][:] = gamma, var
    head = draw.randn(4, 3)
    exe.forward(is_train=True)
    exe.backward(head)
    np.testing.assert_allclose(exe.grad_dict["data"].asnumpy(), head * gamma / np.sqrt(var + 1e-3), rtol=1e-5)
    assert exe.aux_dict["bn_moving_var"].asnumpy().tolist() == var.tolist()


# -- a smaller last batch --------------------------------------------------------------------------------------


def test_batches_of_their_own_sizes_add_up_to_the_gradient_of_all_rows_and_take_no_more_room_each_time():
    def bound(grad_req):
        mod = module()
        mod.bind([("data", (4, 6))], [("softmax_label", (4,))], grad_req=grad_req)
        mx.random.seed(3)
        mod.init_params(mx.init.Xavier())
        return mod

    data, label = samples(10)
    parts, whole = bound("add"), bound("write")
    names, room = ("fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"), set()
    for _ in range(3):
        for name in names:
            parts._executor.grad_dict[name][:] = 0
        for first, last in ((0, 4), (4, 8), (8, 10)):
            parts.forward_backward(mx.io.DataBatch([mx.nd.array(data[first:last])], [mx.nd.array(label[first:last])]))
        group = parts._executor.group
        room.add((group.layout.bytes, group.transient_bytes, len(parts._executors)))
    whole.forward_backward(mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)]))
    for name in names:
        added, once = (mod._executor.grad_dict[name].asnumpy() for mod in (parts, whole))
        np.testing.assert_allclose(added / 10, once / 10, rtol=1e-5, atol=1e-6)
        assert np.abs(once).max() > 1e-3
    assert len(room) == 1
