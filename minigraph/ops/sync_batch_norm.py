"""SyncBatchNorm on the one device that a graph runs on: BatchNorm."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..base import Builder, Entry, PartialShape
from .norm import BatchNorm, BatchNormParams
from .op import Sample, ShapeError
from .params import param
from .registry import register


@dataclass(frozen=True)
class SyncBatchNormParams(BatchNormParams):
    """Parameters of SyncBatchNorm."""

    ndev: int = param(1, "int", "devices whose batches are normalised together: one")
    key: str = param("", "str", "accepted and not used: what tells layers apart between devices")


@register
class SyncBatchNorm(BatchNorm):
    """BatchNorm over the channels of axis 1; with output_mean_var the outputs named mean and var are just these."""

    name = "_contrib_SyncBatchNorm"
    aliases = ()
    Params = SyncBatchNormParams

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if p.ndev != 1 or p.axis != 1:
            raise ShapeError(f"ndev {p.ndev} and axis {p.axis} must be 1: a graph runs on one device, and channels are "
                             f"on axis 1")
        return super().infer_shape(p, ins, outs)

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        own = {field.name: getattr(p, field.name) for field in fields(BatchNormParams)}
        return BatchNorm().expand(b, BatchNormParams(**{**own, "output_mean_var": False}), ins, train)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"fix_gamma": False, "key": "k"}, ((3, 2, 4), *[(2,)] * 4), low=0.5, high=2.0)]
