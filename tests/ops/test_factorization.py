"""Factors and inverses of matrices against PyTorch, and what is said of those that have none."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError

torch = pytest.importorskip("torch", reason="the oracle is PyTorch, which is not installed")
V = mx.sym.Variable


def with_gradient(symbol: mx.sym.Symbol, a: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Outputs, head gradients for them, and the gradient of `a`."""
    executor = symbol.simple_bind(mx.cpu(), a=a.shape, type_dict={"a": np.float64})
    executor.arg_dict["a"][:] = a
    outs = [out.asnumpy() for out in executor.forward(is_train=True)]
    rng = np.random.default_rng(5)
    heads = [rng.uniform(-1, 1, out.shape) for out in outs]
    executor.backward(heads)
    return outs, heads, executor.grad_dict["a"].asnumpy()


def positive(*shape: int) -> np.ndarray:
    root = np.random.default_rng(3).uniform(-1, 1, shape)
    return root @ root.swapaxes(-1, -2) + np.eye(shape[-1])


def check(symbol: mx.sym.Symbol, function: Any, a: np.ndarray) -> None:
    outs, heads, found = with_gradient(symbol, a)
    leaf = torch.tensor(a, requires_grad=True)
    expected = function(leaf)
    for out, want in zip(outs, expected, strict=True):
        np.testing.assert_allclose(out, want.detach().numpy().reshape(out.shape), rtol=1e-9, atol=1e-9)
    total = sum((e.reshape(h.shape) * torch.tensor(h)).sum() for e, h in zip(expected, heads, strict=True))
    gradient, = torch.autograd.grad(total, leaf)
    np.testing.assert_allclose(found, gradient.numpy(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("shape", [(4, 4), (3, 5, 5), (2, 2, 3, 3)])
def test_factors_of_positive_definite_matrices_and_their_gradients_are_torchs(shape: tuple[int, ...]) -> None:
    check(mx.sym.linalg.potrf(V("a")), lambda a: [torch.linalg.cholesky(a)], positive(*shape))


@pytest.mark.parametrize("shape", [(5, 5), (3, 4, 4)])
def test_inverses_and_determinants_with_pivoting_are_torchs(shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(7).uniform(-1, 1, shape)
    a[..., 0, 0] = 0        # rows must be exchanged
    check(mx.sym.linalg.inverse(V("a")), lambda x: [torch.linalg.inv(x)], a)
    check(mx.sym.linalg.det(V("a")), lambda x: [torch.linalg.det(x)], a)
    check(mx.sym.linalg.slogdet(V("a")), lambda x: list(torch.linalg.slogdet(x)), a)


def test_a_factor_gives_the_inverse_back() -> None:
    a = positive(3, 4, 4)
    executor = mx.sym.linalg.potri(mx.sym.linalg.potrf(V("a"))).simple_bind(
        mx.cpu(), a=a.shape, type_dict={"a": np.float64}, grad_req="null")
    executor.arg_dict["a"][:] = a
    np.testing.assert_allclose(executor.forward()[0].asnumpy(), np.linalg.inv(a), rtol=1e-9, atol=1e-9)


def test_a_matrix_without_a_factor_or_an_inverse_gives_nan_and_a_determinant_of_0() -> None:
    for symbol, a in ((mx.sym.linalg.potrf(V("a")), [[1.0, 2.0], [2.0, 1.0]]),
                      (mx.sym.linalg.inverse(V("a")), [[1.0, 2.0], [2.0, 4.0]])):
        executor = symbol.simple_bind(mx.cpu(), a=(2, 2), grad_req="null")
        executor.arg_dict["a"][:] = a
        assert not np.isfinite(executor.forward()[0].asnumpy()).all()
    executor = mx.sym.linalg.det(V("a")).simple_bind(mx.cpu(), a=(2, 2), grad_req="null")
    executor.arg_dict["a"][:] = [[1.0, 2.0], [2.0, 4.0]]
    assert executor.forward()[0].asnumpy() == [0]


def test_matrices_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MXNetError, match="are not square"):
        mx.sym.linalg.inverse(V("a")).infer_shape(a=(2, 3))
    with pytest.raises(MXNetError, match="differ"):
        mx.sym.linalg.trsm(V("a"), V("b")).infer_shape(a=(3, 3), b=(2, 3))
    assert mx.sym.linalg.trsm(V("a"), V("b"), rightside=True).infer_shape(b=(2, 4, 3))[0] == [(2, 3, 3), (2, 4, 3)]
