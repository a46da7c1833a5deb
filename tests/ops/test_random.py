"""Philox, Dropout and sampling."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph.ops  # noqa: F401
from minigraph.base import MXNetError
from minigraph.ops import Workspace, get_op
from minigraph.ops.control import control_size, set_key
from minigraph.ops.philox import TILE, TILE_BLOCKS, philox, word_tiles

from .harness import EagerBuilder, expand_and_run, gradients, parsed, run


def key(seed, step):
    control = np.zeros(control_size(0), np.float32)
    set_key(control, seed, step)
    return control


@pytest.mark.parametrize("counter, seed, words", [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1))])
def test_philox_gives_the_published_answers(counter, seed, words):
    found = philox(seed[0] | seed[1] << 32, counter[3], counter[2], counter[0] | counter[1] << 32,
                   np.zeros((6, 1), np.uint64))
    assert tuple(int(w[0]) for w in found) == words


def test_blocks_of_a_tile_are_those_of_single_calls():
    tile = [w.copy() for w in philox(7, 3, 5, 2 ** 32 - 2, np.zeros((6, 4), np.uint64))]
    for i in range(4):
        single = philox(7, 3, 5, 2 ** 32 - 2 + i, np.zeros((6, 1), np.uint64))
        assert [int(w[0]) for w in single] == [int(w[i]) for w in tile]


def test_tiles_cover_a_tensor_without_a_gap():
    size = TILE + 5
    work = Workspace(np.zeros(6 * TILE_BLOCKS * 8, np.uint8))
    found = [(s, [w.copy() for w in words]) for s, words in word_tiles(key(1, 2), 0, size, work)]
    assert [s for s, _ in found] == [slice(0, TILE), slice(TILE, size)]
    again = philox(1, 0, 2, TILE // 4, np.zeros((6, 2), np.uint64))
    for w, word in zip(again, found[1][1], strict=True):
        assert w.tolist() == word.tolist()


def test_dropout_keeps_an_element_iff_its_uniform_number_reaches_p():
    n, p = TILE + 3, 0.3
    uniform = run("_uniform_keyed", {"shape": (n,), "ordinal": 4}, [key(9, 1)])[0].astype(np.float64)
    x = np.arange(1.0, n + 1).astype(np.float32)
    (out,) = run("_dropout", {"p": p, "ordinal": 4}, [x, key(9, 1)])
    np.testing.assert_array_equal(out, x * np.where(uniform >= p, np.float32(1 / 0.7), 0).astype(np.float32))
    assert abs((out == 0).mean() - p) < 0.01


def test_dropout_backward_draws_the_mask_of_forward():
    x = np.ones(4096, np.float32)
    (y,) = run("_dropout", {"p": 0.5, "ordinal": 0}, [x, key(1, 0)])
    assert set(np.unique(y)) == {0.0, 2.0}
    found, none = gradients("_dropout", {"p": 0.5, "ordinal": 0}, [x, key(1, 0)], [y])
    np.testing.assert_array_equal(found, 2 * y)
    assert none is None


def test_masks_differ_by_seed_step_and_ordinal_and_only_by_them():
    x = np.ones(1000, np.float32)

    def mask(seed, step, ordinal):
        return run("_dropout", {"p": 0.5, "ordinal": ordinal}, [x, key(seed, step)])[0].tobytes()

    assert mask(1, 0, 0) == mask(1, 0, 0)
    assert len({mask(1, 0, 0), mask(2, 0, 0), mask(1 + 2 ** 32, 0, 0), mask(1, 1, 0), mask(1, 0, 1)}) == 5


def test_dropout_disappears_in_evaluation_and_at_p_zero():
    for params, train in (({"p": 0.5}, False), ({"p": 0.0}, True), ({"p": 0.0, "mode": "always"}, False)):
        op, b = get_op("Dropout"), EagerBuilder()
        entry = b.add(np.ones(3))
        assert list(op.expand(b, parsed(op, params), [entry], train)) == [entry, entry]
        assert not b.ops
    b = EagerBuilder()
    expand_and_run("Dropout", {"p": 0.5, "mode": "always"}, [np.ones(3)], train=False, builder=b)
    assert b.ops == ["_dropout"]


def test_two_dropouts_of_a_graph_draw_different_masks():
    b = EagerBuilder()
    x = np.ones(200)
    first = expand_and_run("Dropout", {}, [x], builder=b)[0]
    second = expand_and_run("Dropout", {}, [x], builder=b)[0]
    assert (first != second).any()


def test_shared_axes_drop_together():
    x = np.ones((50, 4, 6), np.float32)
    (out,) = run("_dropout", {"p": 0.5, "ordinal": 0, "axes": (1, 2)}, [x, key(1, 0)])
    assert (out == out[:, :1, :1]).all()
    assert 10 < (out[:, 0, 0] == 0).sum() < 40


@pytest.mark.parametrize("name, p", [("Dropout", -0.1), ("Dropout", 1.5), ("_dropout", 1.0)])
def test_what_is_no_probability_is_refused_and_where_something_must_be_left_1_too(name, p):
    op = get_op(name)
    with pytest.raises(MXNetError, match=r"must be in \[0, 1"):
        op.infer_shape(parsed(op, {"p": p, **({} if name == "Dropout" else {"ordinal": 0})}),
                       [(2,), (8,)][:len(op.inputs(None))], [None] * (2 if name == "Dropout" else 1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples_have_the_asked_moments(dtype):
    (u,) = expand_and_run("uniform", {"low": -1, "high": 3, "shape": (300, 301), "dtype": dtype}, [])
    assert u.dtype == dtype and u.min() >= -1 and u.max() < 3
    assert abs(u.mean() - 1) < 0.02 and abs(u.std() - 4 / 12 ** 0.5) < 0.02
    (z,) = expand_and_run("normal", {"loc": 2, "scale": 0.5, "shape": (300, 301), "dtype": dtype}, [])
    assert z.dtype == dtype and np.isfinite(z).all()
    assert abs(z.mean() - 2) < 0.01 and abs(z.std() - 0.5) < 0.01
    kurtosis = ((z - z.mean()) ** 4).mean() / z.var() ** 2
    assert abs(kurtosis - 3) < 0.1
    even, odd = z.ravel()[:-1:2], z.ravel()[1::2]
    assert abs(np.corrcoef(even, odd)[0, 1]) < 0.02
