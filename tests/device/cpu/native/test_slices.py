"""Operators by the kernels, on slices of the batch cut where their chunks end, have the bits of the whole."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.base import TensorType
from minigraph.device.cpu.native.call import algorithms, native_op
from minigraph.device.cpu.native.layout import Layouts
from minigraph.ops.op import Sliced
from minigraph.ops.registry import get_op
from tests.ops.harness import infer
from tests.ops.test_extended_memory import Case
from tests.ops.test_slices import CASES, form_of, given, run_slices

from .harness import run, threads


def types_of(name: str, p: Any, arrays: list[np.ndarray]) -> tuple[list[TensorType], list[TensorType]]:
    return [TensorType(a.shape, a.dtype) for a in arrays], infer(get_op(name), p, arrays)


def in_layouts(offer: Layouts, types: tuple[list[TensorType], list[TensorType]]) -> list[list[TensorType]]:
    return [[TensorType(t.shape, t.dtype, layout) for t, layout in zip(side, names, strict=True)]
            for side, names in zip(types, (offer.ins, offer.outs), strict=True)]


def tried() -> list[Any]:
    found = []
    for i, case in enumerate(CASES):
        form = form_of(case)
        native = native_op(case[0])
        if form is not None and native is not None and any(form.ins):
            p, arrays = given(case)
            types = types_of(case[0], p, arrays)
            if native.takes(p, *types):
                found += [pytest.param(case, form, offer, id=f"{case[0]}-{i}-{k}")
                          for k, offer in enumerate(native.layouts(p, *types))]
    return found


@pytest.mark.parametrize(("case", "form", "offer"), tried())
def test_slices_by_the_kernels_have_the_bits_of_the_whole(case: Case, form: Sliced, offer: Layouts) -> None:
    name = case[0]
    p, arrays = given(case)
    op, native = get_op(name), native_op(name)
    assert native is not None
    chunk = algorithms(op, p, *in_layouts(offer, types_of(name, p, arrays)))[0].chunk_rows
    batch = arrays[form.ins.index(True)].shape[0]

    def execute(each: Any, own: Any, ins: list[np.ndarray]) -> list[np.ndarray]:
        layouts = offer
        if each is not op:
            layouts = Layouts((*offer.ins, *("",) * (len(ins) - len(offer.ins))), offer.outs)
        return run(each.name, vars(own), ins, layouts)
    with threads(2):
        whole = run(name, vars(p), arrays, offer)
        for length in sorted({chunk, chunk * max(1, batch // 2 // chunk)}):
            for out, wanted in zip(run_slices(name, p, arrays, form, length, execute), whole, strict=True):
                assert out.tobytes() == wanted.tobytes(), (length, batch)
