"""Views, permutations, joins and cuts."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
import minigraph.ops  # noqa: F401
from minigraph.base import MXNetError
from minigraph.ops import ShapeError, get_op

from .harness import EagerBuilder, execute_by_name, gradients, parsed, run

X = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize("shape, code, want", [
    ((2, 3, 4), (4, 0, 2), (4, 3, 2)), ((2, 3, 4), (2, 0, 0), (2, 3, 4)), ((2, 3, 4), (6, 1, -1), (6, 1, 4)),
    ((2, 3, 4), (3, -1, 8), (3, 1, 8)), ((2, 3, 4), (-1,), (24,)), ((2, 3, 4), (-2,), (2, 3, 4)),
    ((2, 3, 4), (2, -2), (2, 3, 4)), ((2, 3, 4), (-2, 1, 1), (2, 3, 4, 1, 1)), ((2, 3, 4), (-3, 4), (6, 4)),
    ((2, 3, 4, 5), (-3, -3), (6, 20)), ((2, 3, 4), (0, -3), (2, 12)), ((2, 3, 4), (-3, -2), (6, 4)),
    ((2, 3, 4), (-4, 1, 2, -2), (1, 2, 3, 4)), ((2, 3, 4), (2, -4, -1, 3, -2), (2, 1, 3, 4)),
    ((0, 3, 4), (0, -1), (0, 12)), ((0, 3), (-1, 3), (0, 3))])
def test_reshape_codes(shape, code, want):
    op = get_op("Reshape")
    assert op.infer_shape(parsed(op, {"shape": str(code)}), [shape], [None])[1] == [want]


@pytest.mark.parametrize("old, want", [
    ({"target_shape": "(0,)"}, (24,)), ({"target_shape": "(4,0)", "keep_highest": "False"}, (4, 6)),
    ({"target_shape": (7, 12), "keep_highest": True}, (2, 12)),
    ({"target_shape": (9, 3, 0), "keep_highest": 1}, (2, 3, 4)),
    ({"target_shape": "(0, 0)", "keep_highest": "False", "shape": "(-3, 0)"}, (6, 4))])
def test_reshape_takes_the_words_of_mxnet_before_09(old, want):
    symbol = mx.sym.Reshape(mx.sym.Variable("x", shape=(2, 3, 4)), name="r", **old)
    assert symbol.infer_shape()[1] == [want]
    again = mx.sym.load_json(symbol.tojson())
    assert again.tojson() == symbol.tojson() and again.list_attr() == {key: str(text) for key, text in old.items()}


@pytest.mark.parametrize("old", [{}, {"keep_highest": True}, {"target_shape": "(0, 0)"}, {"target_shape": "(5, 0)"}])
def test_reshape_in_old_words_that_tell_no_shape_is_refused(old):
    with pytest.raises(MXNetError, match="shape"):
        mx.sym.Reshape(mx.sym.Variable("x", shape=(2, 3, 4)), **old).infer_shape()


def test_reshape_reversed_matches_from_the_right():
    op = get_op("reshape")
    for reverse, want in ((False, (40, 5)), (True, (50, 4))):
        p = parsed(op, {"shape": (-1, 0), "reverse": reverse})
        assert op.infer_shape(p, [(10, 5, 4)], [None])[1] == [want]


@pytest.mark.parametrize("code", [(5, -1), (-1, -1), (0, 0, 0, 0), (-4, 5, 1, -2), (-4, 2), (7, 2)])
def test_reshapes_that_do_not_fit_are_refused(code):
    op = get_op("Reshape")
    with pytest.raises(ShapeError):
        op.infer_shape(parsed(op, {"shape": code}), [(2, 3, 4)], [None])


def test_views_give_the_same_bytes_and_their_gradients_are_views():
    for name, params, shape in (("Flatten", {}, (2, 12)), ("Reshape", {"shape": (0, -1)}, (2, 12)),
                                ("expand_dims", {"axis": -1}, (2, 3, 4, 1))):
        assert get_op(name).view(None)
        (out,) = run(name, params, [X])
        assert out.shape == shape and out.tobytes() == X.tobytes()
        b = EagerBuilder()
        (found,) = gradients(name, params, [X], [2 * out], builder=b)
        np.testing.assert_array_equal(found, 2 * X)
        assert get_op(b.ops[-1]).view(None)


def test_transpose_and_swap_axis_equal_numpy_with_their_gradients():
    g = np.random.default_rng(0).normal(size=24)
    for name, params, order in (("transpose", {}, (2, 1, 0)), ("transpose", {"axes": (1, 2, 0)}, (1, 2, 0)),
                                ("SwapAxis", {"dim1": 0, "dim2": 2}, (2, 1, 0))):
        want = X.transpose(order)
        np.testing.assert_array_equal(run(name, params, [X])[0], want)
        head = g.reshape(want.shape)
        (found,) = gradients(name, params, [X], [head])
        np.testing.assert_array_equal(found, head.transpose(np.argsort(order)))


def test_concat_and_its_gradient_by_cuts():
    parts = [X[:, :1], X[:, 1:]]
    for dim in (1, -2):
        params = {"num_args": 2, "dim": dim}
        np.testing.assert_array_equal(run("Concat", params, parts)[0], X)
        found = gradients("Concat", params, parts, [X])
        np.testing.assert_array_equal(found[0], parts[0])
        np.testing.assert_array_equal(found[1], parts[1])
    assert gradients("Concat", params, parts, [X], wanted=[False, True])[0] is None


def test_concat_completes_one_unknown_input():
    op = get_op("Concat")
    p = parsed(op, {"num_args": 2})
    assert op.infer_shape(p, [(2, 3), None], [(None, 7)]) == ([(2, 3), (2, 4)], [(2, 7)])
    with pytest.raises(ShapeError):
        op.infer_shape(p, [(2, 3), (3, 4)], [None])


def test_slice_channel_cuts_and_its_gradient_joins_with_zeros_for_silence():
    x = X.transpose(0, 2, 1).copy()
    outs = run("SliceChannel", {"num_outputs": 2}, [x])
    np.testing.assert_array_equal(outs[1], x[:, 2:])
    (found,) = gradients("SliceChannel", {"num_outputs": 2}, [x], [None, outs[1]])
    np.testing.assert_array_equal(found, np.concatenate([np.zeros_like(outs[0]), outs[1]], axis=1))


def test_split_with_squeeze_drops_the_axis():
    outs = run("split", {"num_outputs": 3, "axis": 1, "squeeze_axis": True}, [X])
    assert [o.shape for o in outs] == [(2, 4)] * 3
    np.testing.assert_array_equal(outs[2], X[:, 2])
    (found,) = gradients("split", {"num_outputs": 3, "axis": 1, "squeeze_axis": True}, [X], outs)
    np.testing.assert_array_equal(found, X)


def test_cuts_that_do_not_divide_are_refused():
    op = get_op("SliceChannel")
    with pytest.raises(ShapeError, match="2 parts"):
        op.infer_shape(parsed(op, {"num_outputs": 2}), [(2, 3)], [None, None])


def test_slices_equal_numpy_and_their_gradients_are_zero_outside():
    cases = [("slice_axis", {"axis": 1, "begin": 1, "end": 3}, np.s_[:, 1:3]),
             ("slice_axis", {"axis": -1, "begin": -2, "end": None}, np.s_[..., -2:]),
             ("slice", {"begin": (0, None), "end": (1, 2)}, np.s_[0:1, :2]),
             ("crop", {"begin": "(None, 2)", "end": "(None, None)", "step": "(1, -2)"}, np.s_[:, 2::-2])]
    for name, params, key in cases:
        (out,) = run(name, params, [X])
        np.testing.assert_array_equal(out, X[key])
        want = np.zeros_like(X)
        want[key] = out
        np.testing.assert_array_equal(gradients(name, params, [X], [out])[0], want)


def test_the_part_of_a_gradient_outside_a_slice_is_written():
    grad, data = np.ones(2), np.zeros(5)
    (found,) = execute_by_name("_slice_backward", {"begin": "(1,)", "end": "(3,)"}, [grad, data])
    assert found.tolist() == [0, 1, 1, 0, 0]
