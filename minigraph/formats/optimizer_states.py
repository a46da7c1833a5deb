"""Optimizer states in a file: a .params file of arrays whose entry `meta` is JSON text; none of it is code.

MXNet writes these as Python pickles, which can run anything when loaded; they are refused.
"""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base import MXNetError
from . import params

FORMAT = "minigraph optimizer states"
VERSION = 1
Key = str | int
"""A parameter: its name, or the number that a script gave it."""


@dataclass(frozen=True)
class OptimizerStates:
    """What training needs to go on as if it had not stopped.

    `counts` are the updates that each parameter has had, `arrays` its states in the optimizer's order,
    `random_step` the number of the next training step for random operators, None where there is none, `loss_scale` a
    loss scale, the good steps that it has had and the steps left out in all, None without any.
    """

    optimizer: str
    num_update: int
    counts: dict[Key, int] = field(default_factory=dict)
    arrays: dict[Key, tuple[np.ndarray, ...]] = field(default_factory=dict)
    random_step: int | None = None
    loss_scale: tuple[float, int, int] | None = None


def dumps(states: OptimizerStates) -> bytes:
    """The bytes of a file."""
    keys = list(states.arrays)
    meta = {"format": FORMAT, "version": VERSION, "optimizer": states.optimizer,
            "num_update": states.num_update, "random_step": states.random_step,
            "counts": [[key, count] for key, count in states.counts.items()],
            "arrays": [[key, len(states.arrays[key])] for key in keys]}
    if states.loss_scale is not None:
        meta["loss_scale"] = list(states.loss_scale)
    arrays = {"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}
    for position, key in enumerate(keys):
        for number, array in enumerate(states.arrays[key]):
            arrays[f"{position}:{number}"] = array
    return params.dumps(arrays)


def loads(data: bytes) -> OptimizerStates:
    """The states in a file's bytes; MXNetError when they are not such a file."""
    if data[:1] == b"\x80":
        raise MXNetError("these optimizer states are a Python pickle, as MXNet writes them, which may run "
                         "any code when loaded; only files saved by minigraph are read")
    try:
        arrays = params.loads(data)
    except MXNetError as error:
        raise MXNetError(f"no file of optimizer states: {error}") from error
    if not isinstance(arrays, dict) or "meta" not in arrays:
        raise MXNetError("no file of optimizer states: it has no entry `meta`; was it saved by "
                         "save_optimizer_states?")
    return _states(arrays)


def _states(arrays: dict[str, np.ndarray]) -> OptimizerStates:
    try:
        meta: dict[str, Any] = json.loads(arrays["meta"].tobytes())
        if (meta["format"], meta["version"]) != (FORMAT, VERSION):
            raise MXNetError(f"these optimizer states have format {meta['format']!r} version "
                             f"{meta['version']!r}; this version reads {FORMAT!r} version {VERSION}")
        held = {key: tuple(arrays[f"{position}:{number}"] for number in range(count))
                for position, (key, count) in enumerate(meta["arrays"])}
        counts = {key: int(count) for key, count in meta["counts"]}
        step, scale = meta["random_step"], meta.get("loss_scale")
        return OptimizerStates(str(meta["optimizer"]), int(meta["num_update"]), counts, held,
                               None if step is None else int(step), None if scale is None else _loss_scale(*scale))
    except (ValueError, KeyError, TypeError) as error:
        raise MXNetError(f"damaged file of optimizer states: {type(error).__name__} {error}") from error


def _loss_scale(scale: Any, good_steps: Any, skipped_steps: Any) -> tuple[float, int, int]:
    return float(scale), int(good_steps), int(skipped_steps)
