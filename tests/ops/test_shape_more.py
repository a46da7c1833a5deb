"""Shapes, selections and crops of the wider set: exact values, inference both ways, and refusals."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.ops import ShapeError, get_op

from .harness import expand_and_run, gradients, parsed, run


def inferred(name, params, ins, outs=(None,)):
    op = get_op(name)
    return op.infer_shape(parsed(op, params), list(ins), list(outs))


def call(name, *arrays, **params):
    return run(name, params, [np.asarray(a, np.float64) for a in arrays])[0]


def test_squeeze_of_ones_alone_leaves_one_axis():
    assert inferred("squeeze", {}, [(1, 1)])[1] == [(1,)]
    assert inferred("squeeze", {"axis": (0, 2)}, [(1, None, 1)])[1] == [(None,)]
    with pytest.raises(ShapeError, match="axis 1 of .2, 3. has length 3"):
        inferred("squeeze", {"axis": 1}, [(2, 3)])


def test_stack_completes_its_inputs_from_its_output():
    assert inferred("stack", {"num_args": 2, "axis": 1}, [None, None], [(3, 2, 5)])[0] == [(3, 5), (3, 5)]
    np.testing.assert_array_equal(call("stack", [1, 2], [3, 4], num_args=2, axis=-1), [[1, 3], [2, 4]])


def test_broadcasting_refuses_lengths_other_than_1():
    for name, params, ins in (("broadcast_to", {"shape": (2, 4)}, [(2, 3)]),
                              ("broadcast_axis", {"axis": 1, "size": 4}, [(2, 3)]),
                              ("broadcast_like", {}, [(2, 3), (2, 4)])):
        with pytest.raises(ShapeError):
            inferred(name, params, ins)
    with pytest.raises(ShapeError, match="equally many"):
        inferred("broadcast_to", {"shape": (2, 3, 4)}, [(3, 4)])


def test_tile_and_repeat_order_their_copies_as_numpy_does():
    data = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(call("tile", data, reps=(2, 2)), np.tile(data, (2, 2)))
    np.testing.assert_array_equal(call("repeat", data, repeats=2), np.repeat(data, 2))
    np.testing.assert_array_equal(call("repeat", data, repeats=2, axis=1), np.repeat(data, 2, 1))


def test_the_gradient_of_many_copies_keeps_its_precision():
    found, = gradients("tile", {"reps": (3000,)}, [np.ones(2, np.float32)],
                       [np.full(6000, np.float32(1 / 3))])
    np.testing.assert_allclose(found, [1000, 1000], rtol=1e-6)


def test_space_and_depth_follow_mxnet_s_order():
    data = np.arange(16.0).reshape(1, 4, 2, 2)
    np.testing.assert_array_equal(call("depth_to_space", data, block_size=2), [[[
        [0, 4, 1, 5], [8, 12, 9, 13], [2, 6, 3, 7], [10, 14, 11, 15]]]])
    with pytest.raises(ShapeError, match="do not divide"):
        inferred("space_to_depth", {"block_size": 2}, [(1, 1, 3, 4)])


def test_crop_windows_lie_where_they_are_asked_for():
    data = np.arange(20.0).reshape(1, 1, 4, 5)
    out, = expand_and_run("Crop", {"num_args": 1, "h_w": (2, 2), "offset": (1, 3)}, [data])
    np.testing.assert_array_equal(out, [[[[8, 9], [13, 14]]]])
    out, = expand_and_run("Crop", {"num_args": 2, "center_crop": True}, [data, np.zeros((1, 3, 2, 1))])
    np.testing.assert_array_equal(out, [[[[7], [12]]]])
    with pytest.raises(ShapeError, match=r"\[3, 5\) on axis 2 is outside"):
        inferred("Crop", {"num_args": 1, "h_w": (2, 2), "offset": (3, 0)}, [(1, 1, 4, 5)])


def test_where_passes_nothing_of_what_it_does_not_take():
    condition, x = np.array([1.0, 0, 2]), np.array([1.0, np.nan, 3])
    np.testing.assert_array_equal(call("where", condition, x, [7, 8, 9]), [1, 8, 3])
    _, left, right = gradients("where", {}, [condition, np.ones(3), np.ones(3)], [np.array([1, np.inf, 2])])
    np.testing.assert_array_equal(left, [1, 0, 2])
    np.testing.assert_array_equal(right, [0, np.inf, 0])


def test_extrema_are_named_by_their_first_index():
    data = np.array([[1.0, 3, 3], [5, 0, 0]])
    np.testing.assert_array_equal(call("argmax", data, axis=1), [1, 0])
    np.testing.assert_array_equal(call("argmin", data, axis=1, keepdims=True), [[0], [1]])
    np.testing.assert_array_equal(call("argmax", data), [3])
    with pytest.raises(MXNetError, match="over no elements"):
        run("argmax", {"axis": 1}, [np.zeros((2, 0), np.float32)])


def test_gather_nd_raises_for_an_index_out_of_range():
    with pytest.raises(MXNetError, match="index of axis 1"):
        call("gather_nd", np.zeros((2, 3)), [[0], [3]])


def test_gather_nd_adds_gradients_of_repeated_indices():
    found, _ = gradients("gather_nd", {}, [np.zeros((2, 2)), np.array([[0.0, 0, 1], [1, 1, 0]])],
                         [np.array([1.0, 2, 4])])
    np.testing.assert_array_equal(found, [[0, 3], [4, 0]])


@pytest.mark.parametrize("mode, expected", [("constant", [9, 9, 1, 2, 3, 9]), ("edge", [1, 1, 1, 2, 3, 3]),
                                            ("reflect", [3, 2, 1, 2, 3, 2])])
def test_margins_hold_what_the_mode_says(mode, expected):
    out = call("Pad", [[1, 2, 3]], mode=mode, pad_width=(0, 0, 2, 1), constant_value=9)
    np.testing.assert_array_equal(out, [expected])
    with pytest.raises(ShapeError):
        inferred("Pad", {"mode": mode, "pad_width": (1, 2)}, [(2, 3)])


def test_a_mirrored_margin_is_shorter_than_its_axis():
    with pytest.raises(ShapeError, match="too short"):
        inferred("Pad", {"mode": "reflect", "pad_width": (3, 0)}, [(3,)])


def test_arange_counts_as_numpy_does():
    for args, params in (((5,), {"start": 5}), ((1, 2, 0.3), {"start": 1, "stop": 2, "step": 0.3}),
                         ((3, 0, -2), {"start": 3, "stop": 0, "step": -2})):
        np.testing.assert_allclose(run("_arange", params, [])[0], np.arange(*args), rtol=1e-6)
    out = (mx.sym.arange(3, 9, 2, repeat=2) * 1.0).simple_bind(mx.cpu()).forward()[0].asnumpy()
    np.testing.assert_array_equal(out, [3, 3, 5, 5, 7, 7])
    with pytest.raises(ShapeError, match="no number"):
        inferred("_arange", {"start": 3, "stop": 1}, [])


def test_sequences_end_at_their_lengths():
    data, lengths = np.arange(6.0).reshape(3, 2), [1.0, 3]
    with_lengths = {"use_sequence_length": True}
    np.testing.assert_array_equal(call("SequenceMask", data, lengths, **with_lengths, value=-1),
                                  [[0, 1], [-1, 3], [-1, 5]])
    np.testing.assert_array_equal(call("SequenceReverse", data, lengths, **with_lengths), [[0, 5], [2, 3], [4, 1]])
    np.testing.assert_array_equal(call("SequenceLast", data, lengths, **with_lengths), [0, 5])
    with pytest.raises(MXNetError, match=r"sequence length: 0.0 at position \(0,\) is outside \[1, 4\)"):
        call("SequenceLast", data, [0.0, 1], **with_lengths)
    with pytest.raises(MXNetError, match="sequence length"):
        call("SequenceMask", data, [4.0, 1], **with_lengths)


def test_order_keeps_equal_elements_as_they_came_and_puts_nan_last():
    data = [[2.0, np.nan, 3, 2, 3]]
    np.testing.assert_array_equal(call("topk", data, k=0), [[2, 4, 0, 3, 1]])
    np.testing.assert_array_equal(call("topk", data, k=0, is_ascend=True), [[0, 3, 2, 4, 1]])
    np.testing.assert_array_equal(call("topk", data, k=2, ret_typ="value"), [[3, 3]])
    np.testing.assert_array_equal(call("topk", data, k=3, ret_typ="mask"), [[1, 0, 1, 0, 1]])
    with pytest.raises(ShapeError, match="k=6 of 5"):
        inferred("topk", {"k": 6}, [(1, 5)])


def test_indices_beyond_float32_may_be_asked_for_as_integers():
    symbol = mx.sym.argsort(mx.sym.Variable("x"), dtype="int32")
    assert symbol.infer_type(x=np.float32)[1] == [np.int32]
    assert [out.dtype for out in run("topk", {"ret_typ": "both", "dtype": "int32"}, [np.ones((2, 2), np.float32)])] == [
        np.float32, np.int32]


def test_new_operators_are_methods_of_symbols():
    x = mx.sym.Variable("x")
    for method, kwargs, shape in (("clip", {"a_min": 0, "a_max": 1}, (2, 3)), ("tile", {"reps": (2, 1)}, (4, 3)),
                                  ("argmax", {"axis": 1}, (2,)), ("norm", {}, (1,)), ("flip", {"axis": 0}, (2, 3)),
                                  ("broadcast_axes", {"axis": (), "size": ()}, (2, 3)),
                                  ("repeat", {"repeats": 2}, (12,)),
                                  ("pad", {"mode": "edge", "pad_width": (1, 1, 0, 0)}, (4, 3)), ("prod", {}, (1,)),
                                  ("expm1", {}, (2, 3)), ("round", {}, (2, 3)), ("squeeze", {}, (2, 3))):
        _, outs, _ = getattr(x, method)(**kwargs).infer_shape(x=(2, 3))
        assert outs == [shape], method
    assert (x % 2).infer_shape(x=(2, 3))[1] == [(2, 3)]
    assert mx.sym.hypot(x, 3).infer_shape(x=(2, 3))[1] == [(2, 3)]
