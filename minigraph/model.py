"""Checkpoints: prefix-symbol.json, the network, and prefix-NNNN.params, the parameters after NNNN epochs.

Every file is written whole or not at all.
"""
from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import ndarray, symbol
from .base import MXNetError
from .callback import BatchEndParam
from .ndarray import NDArray
from .symbol.symbol import Symbol

if TYPE_CHECKING:
    from .feedforward import FeedForward

__all__ = ["BatchEndParam", "FeedForward", "load_checkpoint", "load_params", "params_file", "save_checkpoint",
           "save_params", "split_params", "symbol_file"]

Params = dict[str, NDArray]


def symbol_file(prefix: str) -> str:
    """The name of a checkpoint's symbol file."""
    return f"{prefix}-symbol.json"


def params_file(prefix: str, epoch: int) -> str:
    """The name of a checkpoint's parameter file."""
    return f"{prefix}-{epoch:04d}.params"


def save_checkpoint(prefix: str, epoch: int, symbol: Symbol | None, arg_params: Mapping[str, NDArray],
                    aux_params: Mapping[str, NDArray], remove_amp_cast: bool = True) -> None:
    """Write the symbol, unless it is None, and the parameters."""
    if symbol is not None:
        symbol.save(symbol_file(prefix), remove_amp_cast=remove_amp_cast)
    name = params_file(prefix, epoch)
    save_params(name, arg_params, aux_params)
    logging.info('Saved checkpoint to "%s"', name)


def save_params(fname: str, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]) -> None:
    """Write arguments as `arg:NAME` and auxiliary states as `aux:NAME`."""
    named = {f"arg:{name}": value for name, value in arg_params.items()}
    named.update((f"aux:{name}", value) for name, value in aux_params.items())
    ndarray.save(fname, named)


def load_params(prefix: str, epoch: int) -> tuple[Params, Params]:
    """(arguments, auxiliary states) of a checkpoint."""
    return split_params(params_file(prefix, epoch))


def split_params(fname: str) -> tuple[Params, Params]:
    """(arguments, auxiliary states) of a file; MXNetError for a name without arg: or aux: before it."""
    loaded = ndarray.load(fname)
    if not isinstance(loaded, dict):
        if not loaded:
            return {}, {}
        raise MXNetError(f"Invalid param file {fname}: its {len(loaded)} arrays have no names")
    split: dict[str, Params] = {"arg": {}, "aux": {}}
    for key, value in loaded.items():
        kind, _, name = key.partition(":")
        if kind not in split or not name:
            raise MXNetError(f"Invalid param file {fname}: {key!r} begins neither with arg: nor with aux:")
        split[kind][name] = value
    return split["arg"], split["aux"]


def load_checkpoint(prefix: str, epoch: int) -> tuple[Symbol, Params, Params]:
    """(symbol, arguments, auxiliary states) of a checkpoint."""
    return symbol.load(symbol_file(prefix)), *load_params(prefix, epoch)


def __getattr__(name: str) -> Any:
    """FeedForward, which is built on modules, and these on this file."""
    if name == "FeedForward":
        return importlib.import_module(".feedforward", __package__).FeedForward
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
