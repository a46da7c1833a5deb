"""The runner of the passes."""
from __future__ import annotations

import gc

import pytest

import minigraph as mx
from minigraph.base import OutOfMemoryError


def _network():
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4), name="softmax")


@pytest.mark.parametrize("enabled", [True, False])
def test_collection_of_cyclic_garbage_is_as_before_after_planning(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        mx.plan(_network(), {"data": (2, 3)})
        assert gc.isenabled() == enabled
        with pytest.raises(OutOfMemoryError):
            mx.plan(_network(), {"data": (2, 3)}, budget=1)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_passes_run_without_collection(monkeypatch):
    seen = []
    monkeypatch.setattr("minigraph.passes.pipeline.lint", lambda graph, name: seen.append(gc.isenabled()))
    mx.plan(_network(), {"data": (2, 3)})
    assert seen and not any(seen)
