"""Cells around cells and convolutional cells: MXNet's values, zoneout by its masks, and misuse."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError

CELLS = {
    "residual": lambda: mx.rnn.ResidualCell(mx.rnn.LSTMCell(4, prefix="l_")),
    "residual fused": lambda: mx.rnn.ResidualCell(mx.rnn.FusedRNNCell(4, mode="gru", prefix="f_")),
    "zoneout": lambda: mx.rnn.ZoneoutCell(mx.rnn.GRUCell(4, prefix="g_"), 0.3, 0.2),
    "conv rnn": lambda: mx.rnn.ConvRNNCell((1, 2, 4, 5), 3, prefix="c_"),
    "conv lstm": lambda: mx.rnn.ConvLSTMCell((1, 2, 4, 5), 3, prefix="c_", activation="tanh", i2h_stride=(2, 1)),
    "conv gru": lambda: mx.rnn.ConvGRUCell((1, 2, 4, 5), 3, prefix="c_", h2h_kernel=(1, 3)),
}


@pytest.mark.parametrize("cell, steps, shapes, sums", [
    ("residual", 3, [(2, 3, 4), (2, 4), (2, 4)], [1.2128, -0.2505, -0.4088]),
    ("residual", 1, [(2, 1, 4), (2, 4), (2, 4)], [-0.0615, -0.0853, -0.1844]),
    ("residual fused", 3, [(2, 3, 4)], [1.4982]),
    ("zoneout", 3, [(2, 3, 4), (2, 4)], [0.6121, -0.5781]),
    ("conv rnn", 3, [(2, 3, 3, 4, 5), (2, 3, 4, 5)], [-0.727, -0.675]),
    ("conv rnn", 1, [(2, 1, 3, 4, 5), (2, 3, 4, 5)], [-0.9432, -0.9432]),
    ("conv lstm", 3, [(2, 3, 3, 2, 5), (2, 3, 2, 5), (2, 3, 2, 5)], [0.0414, 0.5828, 1.1373]),
    ("conv gru", 3, [(2, 3, 3, 4, 5), (2, 3, 4, 5)], [-1.3754, -0.7133])])
def test_outputs_and_states_are_those_of_mxnet(cell, steps, shapes, sums):
    """Each array's elements, times cos(0), cos(1) and so on, are added; the sums are MXNet 1.9.1's."""
    images = cell.startswith("conv")
    outputs, states = CELLS[cell]().unroll(steps, mx.sym.Variable("x"), layout="NTCHW" if images else "NTC",
                                           merge_outputs=True)
    exe = mx.sym.Group([outputs, *states]).simple_bind(mx.cpu(), x=(2, steps, 2, 4, 5) if images else (2, steps, 4))
    for name, array in exe.arg_dict.items():
        array[:] = 0.5 * np.sin(np.arange(array.size) * 0.7 + len(name)).reshape(array.shape)
    exe.forward(is_train=False)
    assert [output.shape for output in exe.outputs] == shapes
    found = [(o.asnumpy().ravel() * np.cos(np.arange(o.size))).sum() for o in exe.outputs]
    np.testing.assert_allclose(found, sums, atol=2e-4)


def test_zoneout_keeps_outputs_and_states_of_the_step_before_in_training():
    """Around a cell that gives its input times 1, 2, 3 ... the kept elements are seen."""
    class Counting(mx.rnn.BaseRNNCell):
        state_info = [{"shape": (0, 1000), "__layout__": "NC"}]

        def __call__(self, inputs, states):
            self._counter += 1
            return inputs * (self._counter + 1.0), [states[0] + inputs]

    cell = mx.rnn.ZoneoutCell(Counting(), zoneout_outputs=0.25, zoneout_states=0.5)
    for _ in range(2):      # the second time as the first: it is reset
        outputs, states = cell.unroll(2, mx.sym.Variable("x"), merge_outputs=False)
    mx.random.seed(4)
    exe = mx.sym.Group([*outputs, *states]).simple_bind(mx.cpu(), grad_req="null", x=(1, 2, 1000))
    exe.arg_dict["x"][:] = 1
    first, second, state = (output.asnumpy()[0] for output in exe.forward(is_train=True))
    assert set(np.unique(first)) == {0, 1} and set(np.unique(second)) == {0, 1, 2}
    assert abs((first == 0).mean() - 0.25) < 0.05 and abs((second != 2).mean() - 0.25) < 0.05
    assert (second[second != 2] == first[second != 2]).all()
    assert abs(state.mean() - 1) < 0.1 and set(np.unique(state)) == {0, 1, 2}
    evaluated = [output.asnumpy()[0] for output in exe.forward(is_train=False)]
    assert [float(each.mean()) for each in evaluated] == [1, 2, 2]


def test_a_stack_of_residual_cells_trains_and_its_weights_are_packed_by_the_cells_within(tmp_path):
    stack = mx.rnn.SequentialRNNCell()
    stack.add(mx.rnn.LSTMCell(4, prefix="a_"))
    stack.add(mx.rnn.ResidualCell(mx.rnn.ZoneoutCell(mx.rnn.LSTMCell(4, prefix="b_"), 0.1, 0.1)))
    outputs, _ = stack.unroll(3, mx.sym.Variable("data"), merge_outputs=True)
    net = mx.sym.LinearRegressionOutput(outputs, mx.sym.Variable("softmax_label"))
    draw = np.random.RandomState(0)
    data = mx.io.NDArrayIter(draw.randn(16, 3, 5), draw.randn(16, 3, 4), batch_size=8)
    module = mx.mod.Module(net)
    losses = []
    module.fit(data, num_epoch=6, eval_metric="mse", optimizer="adam", initializer=mx.init.Xavier(),
               optimizer_params={"learning_rate": 0.05},
               batch_end_callback=lambda param: losses.append(param.eval_metric.get()[1]))
    assert losses[-1] < losses[0]
    arguments, states = module.get_params()
    mx.rnn.save_rnn_checkpoint(stack, str(tmp_path / "net"), 1, net, arguments, states)
    _, loaded, _ = mx.rnn.load_rnn_checkpoint(stack, str(tmp_path / "net"), 1)
    assert sorted(loaded) == sorted(arguments)
    for name, value in arguments.items():
        np.testing.assert_array_equal(loaded[name].asnumpy(), value.asnumpy())
    unpacked = stack.unpack_weights(arguments)
    assert unpacked["b_i2h_f_weight"].shape == (4, 4)


def test_gates_of_convolutional_cells_are_unpacked_and_packed():
    cell = mx.rnn.ConvLSTMCell((1, 2, 4, 5), 3, prefix="c_")
    weights = {"c_i2h_weight": mx.nd.array(np.arange(12 * 18).reshape(12, 2, 3, 3)), "c_i2h_bias": mx.nd.arange(12),
               "c_h2h_weight": mx.nd.ones((12, 3, 3, 3)), "c_h2h_bias": mx.nd.zeros(12)}
    unpacked = cell.unpack_weights(weights)
    np.testing.assert_array_equal(unpacked["c_i2h_f_bias"].asnumpy(), [3, 4, 5])
    packed = cell.pack_weights(unpacked)
    for name, value in weights.items():
        np.testing.assert_array_equal(packed[name].asnumpy(), value.asnumpy())


def test_misuse_is_told():
    fused, single = mx.rnn.FusedRNNCell(4, prefix="f_"), mx.rnn.LSTMCell(4, prefix="l_")
    with pytest.raises(MXNetError, match="unfuse"):
        mx.rnn.ZoneoutCell(fused, 0.1)
    both = mx.rnn.SequentialRNNCell()
    both.add(mx.rnn.BidirectionalCell(mx.rnn.GRUCell(4, prefix="x_"), mx.rnn.GRUCell(4, prefix="y_")))
    with pytest.raises(MXNetError, match="around each cell"):
        mx.rnn.ZoneoutCell(both, 0.1)
    mx.rnn.ZoneoutCell(single, 0.1)
    with pytest.raises(MXNetError, match="call that one instead"):
        single.begin_state()
    with pytest.raises(MXNetError, match=r"h2h_kernel=\(2, 3\) must be odd"):
        mx.rnn.ConvRNNCell((1, 2, 4, 5), 3, h2h_kernel=(2, 3))


def test_a_state_whose_batch_no_input_decides_is_told():
    with pytest.raises(MXNetError, match=r"no input decides these shapes: first_output \(\?, 4\), .*; give"):
        (mx.sym.zeros(shape=(0, 4), name="first") + 1.0).simple_bind(mx.cpu())
