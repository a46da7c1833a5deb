"""NDArrays in files: MXNet's .params, and safetensors."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ..base import MXNetError
from ..formats import params, safetensors
from ..formats.atomic import write_atomically
from .array import NDArray
from .creation import host


def save(fname: str | os.PathLike, data: NDArray | Sequence[NDArray] | Mapping[str, NDArray]) -> None:
    """Write one array, a list or a dict as MXNet's .params, or a dict as safetensors if `fname` ends so.

    An old file stays whole if writing fails. TypeError for what is no NDArray, or a name that is no text.
    """
    if isinstance(data, NDArray):
        data = [data]
    given = data.items() if isinstance(data, Mapping) else enumerate(data)
    for name, each in given:
        if not isinstance(each, NDArray) or not isinstance(name, str) and isinstance(data, Mapping):
            raise TypeError(f"save writes NDArrays, by names that are texts if they have names; got {name!r}: "
                            f"{type(each).__name__}; make one by mx.nd.array")
    values: list | dict
    if isinstance(data, Mapping):
        values = {name: each.storage.read() for name, each in data.items()}
    else:
        values = [each.storage.read() for each in data]
    written = safetensors.dumps(values) if _is_safetensors(fname) else params.dumps(values)  # type: ignore[arg-type]
    write_atomically(fname, written)


def _is_safetensors(fname: str | os.PathLike) -> bool:
    return os.fspath(fname).endswith(".safetensors")


def load(fname: str | os.PathLike) -> list[NDArray] | dict[str, NDArray]:
    """The list or dict of a .params file, or the dict of a file that ends in .safetensors.

    MXNetError names the file if it is not one or is damaged.
    """
    with open(fname, "rb") as file:
        buffer = file.read()
    try:
        if _is_safetensors(fname):
            return {name: host(each, None) for name, each in safetensors.loads(buffer)[0].items()}
        return load_frombuffer(buffer)
    except MXNetError as error:
        raise MXNetError(f"{os.fspath(fname)}: {error}") from error


def load_frombuffer(buf: bytes) -> list[NDArray] | dict[str, NDArray]:
    """As `load`, from the bytes of such a file."""
    values = params.loads(buf)
    if isinstance(values, dict):
        return {name: host(each, None) for name, each in values.items()}
    return [host(each, None) for each in values]
