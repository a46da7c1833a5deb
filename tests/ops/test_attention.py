"""Scaled dot product attention."""
from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from minigraph.base import TensorType, align
from minigraph.ops import attention
from minigraph.ops.op import ShapeError, Workspace
from minigraph.ops.registry import get_op

from .harness import execute_by_name, gradients, parsed, poisoned, run

NAME = "scaled_dot_product_attention"


def arrays(*shapes, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def by_hand(q, k, v, heads, seen, scale=None):
    """(output, gradients by a head gradient) in PyTorch's float64, with scores of -infinity where not `seen`."""
    torch = pytest.importorskip("torch")
    leaves = [torch.tensor(a, requires_grad=True) for a in (q, k, v)]
    split = [t.unflatten(2, (heads, -1)).transpose(1, 2) for t in leaves]
    out = torch.nn.functional.scaled_dot_product_attention(*split, attn_mask=torch.tensor(seen), scale=scale)
    return leaves, out.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("chunk_bytes", [1 << 20, 3000, 100])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(37, 37), (40, 23), (23, 40)])
def test_tiles_of_any_size_give_the_output_and_gradients_of_torch(monkeypatch, chunk_bytes, causal, queries, keys):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(attention, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(attention, "CAUSAL_ROWS", 16)
    q, k, v, g = arrays((3, queries, 8), (3, keys, 8), (3, keys, 6), (3, queries, 6))
    seen = np.ones((3, 2, queries, keys), bool)
    leaves, want = by_hand(q, k, v, 2, np.tril(seen) if causal else seen)
    params = {"num_heads": 2, "causal": causal}
    np.testing.assert_allclose(run(NAME, params, [q, k, v])[0], want.detach(), 1e-12, 1e-12)
    for found, expected in zip(gradients(NAME, params, [q, k, v], [g, None]),
                               torch.autograd.grad(want, leaves, torch.tensor(g)), strict=True):
        np.testing.assert_allclose(found, expected, 1e-11, 1e-11)


def test_a_row_that_sees_nothing_is_zero_and_its_gradients_are_finite():
    x, g = arrays((1, 4, 6), (1, 4, 6))
    mask = np.ones((1, 2, 4, 4))
    mask[0, :, 2] = 0
    params = {"num_heads": 2, "use_mask": True}
    out, _ = run(NAME, params, [x, x, x, mask])
    plain, _ = run(NAME, {"num_heads": 2}, [x, x, x])
    assert not out[0, 2].any()
    assert np.delete(out, 2, axis=1).tobytes() == np.delete(plain, 2, axis=1).tobytes()
    found = gradients(NAME, params, [x, x, x, mask], [g, None])
    assert found[3] is None and all(np.isfinite(f).all() for f in found[:3]) and not found[0][0, 2].any()
    g[0, 2] = 0     # what arrives at that row matters to nobody
    for a, b in zip(found[:3], gradients(NAME, params, [x, x, x, mask], [g, None])[:3], strict=True):
        np.testing.assert_allclose(a, b, 0, 1e-15)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_image_without_keys_is_zero_in_every_dtype(dtype):
    q, k, v, g = arrays((2, 3, 4), (2, 5, 4), (2, 5, 4), (2, 3, 4), dtype=dtype)
    length = np.array([0, 5], dtype)
    out, _ = run(NAME, {"use_length": True}, [q, k, v, length])
    assert not out[0].any() and np.isfinite(out).all()
    for found in gradients(NAME, {"use_length": True}, [q, k, v, length], [g, None])[:3]:
        assert not found[0].any() and np.isfinite(found).all() and found[1].any()
    empty, _ = run(NAME, {}, [q, k[:, :0], v[:, :0]])
    assert empty.shape == (2, 3, 4) and not empty.any()


def test_a_length_hides_what_lies_behind_it():
    q, k, v = arrays((2, 3, 4), (2, 5, 4), (2, 5, 4))
    out, _ = run(NAME, {"use_length": True}, [q, k, v, np.array([2, 4])])
    for image, length in ((0, 2), (1, 4)):
        alone, _ = run(NAME, {}, [a[image:image + 1] for a in (q, k[:, :length], v[:, :length])])
        np.testing.assert_allclose(out[image], alone[0], 1e-14)


@pytest.mark.parametrize("length", [-1.0, 6.0, np.nan])
def test_a_length_out_of_range_is_refused(length):
    q, k, v = arrays((2, 3, 4), (2, 5, 4), (2, 5, 4))
    with pytest.raises(Exception, match=r"length.*position \(1,\)"):
        run(NAME, {"use_length": True}, [q, k, v, np.array([2, length])])


def test_extreme_scores_neither_overflow_nor_vanish():
    q = np.array([[[1e4], [-1e4]]], np.float32)
    k, v = np.array([[[3e4], [-3e4]]], np.float32), np.array([[[1], [2]]], np.float32)
    with np.errstate(all="raise", under="ignore"):
        out, lse = run(NAME, {}, [q, k, v])
    assert out.reshape(-1).tolist() == [1, 2] and lse.reshape(-1).tolist() == [3e8, 3e8]


@pytest.mark.parametrize("length", [9, 150])
def test_an_image_has_the_same_bits_in_any_company(length):
    q, k, v, g = arrays(*[(9, length, 8)] * 4, dtype=np.float32)
    params = {"num_heads": 2, "causal": True}
    whole = execute_by_name(NAME, params, [q, k, v])
    backward = [g, q, k, v, *whole]
    whole += execute_by_name(f"_{NAME}_backward", params, backward)
    part = execute_by_name(NAME, params, [a[3:7] for a in (q, k, v)])
    part += execute_by_name(f"_{NAME}_backward", params, [a[3:7] for a in backward])
    assert all(a[3:7].tobytes() == b.tobytes() for a, b in zip(whole, part, strict=True))


@pytest.mark.parametrize("params", [{"causal": True}, {"use_mask": True, "use_length": True}])
def test_memory_is_what_is_declared(params):
    params = {"num_heads": 2, **params}
    n, length = 3, 300
    q, k, v, g = arrays(*[(n, length, 32)] * 4, dtype=np.float32)
    extra = [np.ones((n, 1, length, length), np.float32), np.full(n, length, np.float32)][:2 * ("use_mask" in params)]
    out, lse = run(NAME, params, [q, k, v, *extra])
    for name, ins in ((NAME, [q, k, v, *extra]), (f"_{NAME}_backward", [g, q, k, v, out, lse, *extra])):
        op = get_op(name)
        p = parsed(op, params)
        types = [TensorType(a.shape, a.dtype) for a in ins]
        outs = [poisoned(s, np.float32) for s in op.infer_shape(p, [a.shape for a in ins], [None] * 3)[1]]
        workspace_bytes = op.algorithms(p, types, types)[0].workspace_bytes
        assert workspace_bytes < 6 << 20
        work = Workspace(np.empty(align(workspace_bytes), np.uint8))
        op.compute(p, ins, outs, work.reset())
        tracemalloc.start()
        op.compute(p, ins, outs, work.reset())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 48 << 10


def test_shapes_complete_each_other_and_contradictions_are_named():
    op = get_op(NAME)
    p = parsed(op, {"num_heads": 2, "use_length": True})
    ins, outs = op.infer_shape(p, [(2, None, 8), (None, 5, None), None, None], [(None, 3, 6), None])
    assert ins == [(2, 3, 8), (2, 5, 8), (2, 5, 6), (2,)] and outs == [(2, 3, 6), (2, 2, 3)]
    for shapes, match in (([(2, 3, 7), None, None, None], r"queries of shape \(2, 3, 7\).*2 heads"),
                          ([(2, 3), None, None, None], r"queries has shape \(2, 3\)"),
                          ([(2, 3, 8), (2, 5, 4), None, None], "differ")):
        with pytest.raises(ShapeError, match=match):
            op.infer_shape(p, shapes, [None, None])
    with pytest.raises(ShapeError, match=r"mask has shape \(2, 3, 5\); it must be \(2, 2, 3, 5\)"):
        op.infer_shape(parsed(op, {"num_heads": 2, "use_mask": True}), [(2, 3, 8), (2, 5, 8), (2, 5, 6), (2, 3, 5)],
                       [None, None])
    with pytest.raises(Exception, match="num_heads must be 1 or more"):
        parsed(op, {"num_heads": 0})


def test_no_gradient_is_made_that_nobody_asks_for():
    q, k, v = arrays(*[(1, 2, 3)] * 3)
    assert gradients(NAME, {}, [q, k, v], [None, None]) == [None] * 3
    assert gradients(NAME, {}, [q, k, v], [q, None], wanted=[False] * 3) == [None] * 3


def test_cost_counts_only_what_a_causal_query_sees():
    op = get_op(NAME)
    q, v, out = (TensorType(s, np.dtype(np.float32)) for s in ((2, 4, 6), (2, 4, 6), (2, 4, 6)))
    full, causal = (op.cost(parsed(op, {"causal": c}), [q, q, v], [out]).flops for c in (False, True))
    assert full / causal == 16 / 10
