"""What MXNet's smaller operators do at their edges: NaN, poles, diagonals, repeated indices; and that none lacks."""
from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.ops import public_names

from .harness import expand_and_run, gradients, run

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "mxnet-api.md"


def evaluated(symbol, **inputs):
    return [each.asnumpy() for each in symbol.eval(mx.cpu(), **{k: mx.nd.array(v) for k, v in inputs.items()})]


def graded(symbol, data):
    """The gradient of the sum of a symbol's output."""
    executor = mx.sym.sum(symbol).simple_bind(mx.cpu(), x=np.shape(data), poison=True)
    executor.forward(is_train=True, x=np.asarray(data, np.float32))
    executor.backward(mx.nd.ones((1,)))
    return executor.grad_dict["x"].asnumpy()


X = mx.sym.Variable("x")


@pytest.mark.skipif(not REFERENCE.is_file(), reason="needs the reference pages that lie beside a development checkout")
def test_every_operator_of_the_reference_is_registered():
    chapter = REFERENCE.read_text().split("\n## C.")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in chapter.splitlines() if line.startswith("| ") and "---" not in line][1:]
    words = {word for cell in cells for word in re.findall(r"\b_?[A-Za-z]\w+\b", cell.replace("/", ", "))}
    spelled = {name for name, _ in public_names()}
    endings = {"sub", "mul", "div"}  # of broadcast_add/sub/mul/div
    assert len(words) > 90
    assert words - spelled - endings - {"if", "in", "JSON", "aliases"} == set()
    assert {f"broadcast_{word}" for word in endings} <= spelled


@pytest.mark.parametrize("name", ["nansum", "nanprod", "diag", "scatter_nd", "gather_nd", "logical_and", "logical_or",
                                  "logical_xor", "logical_not", "broadcast_logical_and", "broadcast_logical_or",
                                  "broadcast_logical_xor", "softmin", "shape_array", "size_array", "gamma", "gammaln"])
def test_the_front_end_offers(name):
    assert callable(getattr(mx.sym, name))


def test_nan_counts_as_nothing_and_gets_no_gradient():
    data = [[1, math.nan, 3], [math.nan, math.nan, 2]]
    assert evaluated(mx.sym.nansum(X, axis=1), x=data)[0].tolist() == [4, 2]
    assert evaluated(mx.sym.nanprod(X, axis=0), x=data)[0].tolist() == [1, 1, 6]
    assert graded(mx.sym.nansum(X, axis=1), data).tolist() == [[1, 0, 1], [0, 0, 1]]
    assert graded(mx.sym.nanprod(X, axis=0), data).tolist() == [[1, 0, 2], [0, 0, 3]]


def test_diagonals_are_taken_put_and_refused_outside_the_matrix():
    matrix = np.arange(12.0).reshape(3, 4)
    for k in range(-2, 4):
        assert np.array_equal(run("diag", {"k": k}, [matrix])[0], np.diag(matrix, k))
        assert np.array_equal(run("diag", {"k": k}, [matrix[0]])[0], np.diag(matrix[0], k))
    for k in (-3, 4):
        with pytest.raises(MXNetError, match=f"k={k} is outside a matrix of 3 x 4"):
            mx.sym.diag(X, k=k).infer_shape(x=(3, 4))
    with pytest.raises(MXNetError, match="the same axis"):
        mx.sym.diag(X, axis1=1, axis2=-1).infer_shape(x=(3, 4))
    found, = gradients("diag", {"k": -1}, [matrix], [np.array([5.0, 7.0])])
    assert found.tolist() == [[0, 0, 0, 0], [5, 0, 0, 0], [0, 7, 0, 0]]


def test_rows_scattered_to_one_place_are_added_and_gathering_is_the_way_back():
    rows, indices = np.array([[1.0, 2], [3, 4], [5, 6]]), np.array([[2.0, 0, 2]])
    out, = run("scatter_nd", {"shape": (3, 2)}, [rows, indices])
    assert out.tolist() == [[3, 4], [0, 0], [6, 8]]
    found = gradients("scatter_nd", {"shape": (3, 2)}, [rows, indices], [out])
    assert found[0].tolist() == [[6, 8], [3, 4], [6, 8]] and found[1] is None
    with pytest.raises(MXNetError, match="scatter_nd: index of axis 0: 3.0"):
        run("scatter_nd", {"shape": (3, 2)}, [rows, indices + 1])


def test_whatever_is_not_0_holds():
    lhs, rhs = np.array([0.0, 0, 2, math.nan]), np.array([0, 1e-40, 0, -1.0])
    for name, expected in (("and", [0, 0, 0, 1]), ("or", [0, 1, 1, 1]), ("xor", [0, 1, 1, 0])):
        for op in (f"_logical_{name}", f"broadcast_logical_{name}"):
            assert run(op, {}, [lhs, rhs])[0].tolist() == expected
            assert gradients(op, {}, [lhs, rhs], [lhs]) == [None, None]
    assert run("logical_not", {}, [lhs])[0].tolist() == [1, 1, 0, 0]


def test_gamma_and_its_logarithm_are_those_of_the_standard_library():
    data = np.concatenate([np.linspace(-4.97, 30, 700), [1e-3, 0.5, 1, 2, 170.5]])
    np.testing.assert_allclose(run("gamma", {}, [data])[0], [math.gamma(x) for x in data], rtol=2e-13)
    np.testing.assert_allclose(run("gammaln", {}, [data])[0], [math.lgamma(x) for x in data], rtol=1e-12, atol=1e-12)
    assert np.isposinf(run("gamma", {}, [np.array([0.0, 172, np.inf])])[0]).all()
    assert np.isnan(run("gamma", {}, [np.array([-1.0, -3, np.nan])])[0]).all()
    assert np.isposinf(run("gammaln", {}, [np.array([0.0, -1, np.inf, -np.inf])])[0]).all()


def test_the_derivative_of_the_logarithm_of_gamma_is_eulers_constant_at_1():
    found, = run("_digamma", {}, [np.array([1.0, 0.5, 10.0, -0.5])])
    euler = 0.57721566490153286
    np.testing.assert_allclose(found, [-euler, -euler - 2 * math.log(2), 2.2517525890667211, 0.03648997397857652],
                               rtol=1e-13)
    assert np.isnan(run("_digamma", {}, [np.array([0.0, -2])])[0]).all()


def test_the_shape_is_told_in_64_bits_on_the_executor():
    shape, size = evaluated(mx.sym.Group([mx.sym.shape_array(X), mx.sym.size_array(X)]), x=np.zeros((2, 5, 1)))
    assert shape.dtype == size.dtype == np.int64 and shape.tolist() == [2, 5, 1] and size.tolist() == [10]


def test_the_norm_takes_a_dtype_and_softmin_prefers_the_smallest():
    norm, = evaluated(mx.sym.norm(X, out_dtype="float64"), x=[[3.0, 4]])
    assert norm.dtype == np.float64 and norm.tolist() == [5]
    found, = expand_and_run("softmin", {}, [np.array([[0.0, math.log(3)]])])
    np.testing.assert_allclose(found, [[0.75, 0.25]])


def network():
    """The operators of this file in one another's gradients, and sequences of several lengths."""
    positive = mx.sym.square(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=18, name="fc")) + 0.5
    inner = mx.sym.gamma(positive) + mx.sym.gammaln(positive) * mx.sym.softmin(positive, axis=1)
    inner = mx.sym.diag(mx.sym.Reshape(inner, shape=(-1, 3, 2, 3)), axis1=1, axis2=3)
    none = mx.sym.logical_not(mx.sym.norm(inner))
    rows = mx.sym.nansum(inner, axis=1) + mx.sym.broadcast_sub(mx.sym.nanprod(inner, axis=1), none)
    moved = mx.sym.scatter_nd(rows, mx.sym.Variable("index"), shape=(4, 3))
    hidden = mx.sym.RNN(mx.sym.expand_dims(moved, axis=2), state_size=3, num_layers=2, mode="lstm", bidirectional=True,
                        use_sequence_length=True, state_outputs=True, name="rnn")
    return mx.sym.MakeLoss(mx.sym.add_n(*(mx.sym.mean(hidden[k]) for k in range(3))), name="loss")


def test_a_memory_mode_changes_no_bit():
    found = []
    for memory in ("naive", "plain", "inplace", "sublinear"):
        executor = network().simple_bind(mx.cpu(), data=(4, 5), index=(1, 4), memory=memory, poison=True)
        draw = np.random.RandomState(0)
        for name, array in executor.arg_dict.items():
            array[:] = {"index": [[2, 0, 2, 3]], "rnn_sequence_length": [4, 1, 3]}.get(
                name, draw.uniform(-0.5, 0.5, array.shape))
        out = executor.forward(is_train=True)[0].asnumpy()
        executor.backward()
        found.append([out, *(g.asnumpy() for n, g in executor.grad_dict.items()
                             if n not in ("index", "rnn_sequence_length"))])
    assert all(np.isfinite(array).all() for array in found[0]) and np.abs(found[0][1]).max() > 0
    for other in found[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found[0], other, strict=True))
