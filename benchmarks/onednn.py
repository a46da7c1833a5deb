"""oneDNN's convolutions by its C interface (version 3), in the blocked layouts that it likes best, for kernels.py.

The library comes by `pip install onednn-cpu-gomp`, or is any other `libdnnl.so.3`. Operands and weights lie in its own
layouts before anything is timed. Numbers below are those of its header dnnl_types.h.
"""
from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FILE = "libdnnl.so.3"
FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT = "forward", "data gradient", "weight gradient"
_CPU, _IN_ORDER, _FLOAT32, _ANY, _TRAINING, _AUTO = 1, 1, 3, 1, 64, 3
_ALLOCATE = ctypes.c_void_p(-1)
_SRC, _DIFF_SRC, _WEIGHTS, _DIFF_WEIGHTS, _DST, _DIFF_DST = range(6)
_QUERY, _ARGUMENT = (129, 130, 131, 132, 133, 134), (1, 129, 33, 161, 17, 145)
"""Of source, weights and destination, and of their gradients in between."""
_USED = {FORWARD: (_SRC, _WEIGHTS, _DST), BACKWARD_DATA: (_DIFF_SRC, _WEIGHTS, _DIFF_DST),
         BACKWARD_WEIGHT: (_SRC, _DIFF_WEIGHTS, _DIFF_DST)}
_CREATE = {FORWARD: "convolution_forward", BACKWARD_DATA: "convolution_backward_data",
           BACKWARD_WEIGHT: "convolution_backward_weights"}


class _Argument(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_int), ("memory", ctypes.c_void_p))


def installed() -> Path | None:
    """Where pip puts the library, if it is there."""
    path = Path(sys.prefix) / "lib" / FILE
    return path if path.exists() else None


class OneDnn:
    """The library on so many threads; OSError when the file is no library."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL("libgomp.so.1").omp_set_num_threads(threads)
        self._engine, self._stream = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("engine_create", ctypes.byref(self._engine), _CPU, ctypes.c_size_t(0))
        self._call("stream_create", ctypes.byref(self._stream), self._engine, _IN_ORDER)

    @property
    def version(self) -> str:
        """Such as 3.2.0."""
        class Version(ctypes.Structure):
            _fields_ = tuple((name, ctypes.c_int) for name in ("major", "minor", "patch"))
        function = self._library.dnnl_version
        function.restype = ctypes.POINTER(Version)
        found = function().contents
        return f"{found.major}.{found.minor}.{found.patch}"

    def convolution(self, phase: str, shapes: Sequence[Sequence[int]], stride: int, pad: int) -> Callable[[], None]:
        """A phase of a convolution over random numbers; `shapes` are those of data, weight (with groups, if there are
        several, as a dimension of their own in front) and output."""
        data, weight, out = (self._any(shape) for shape in shapes)
        geometry = [_dims([value] * 2) for value in (stride, 0, pad, pad)]
        forward, made = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("convolution_forward_primitive_desc_create", ctypes.byref(forward), self._engine, _TRAINING, _AUTO,
                   data, weight, None, out, *geometry, None)
        if phase == FORWARD:
            made = forward
        else:
            operands = (data, weight, out) if phase == BACKWARD_DATA else (data, weight, None, out)
            self._call(f"{_CREATE[phase]}_primitive_desc_create", ctypes.byref(made), self._engine, _AUTO, *operands,
                       *geometry, forward, None)
        primitive = ctypes.c_void_p()
        self._call("primitive_create", ctypes.byref(primitive), made)
        arguments = (_Argument * 3)(*(_Argument(_ARGUMENT[role], self._memory(made, role)) for role in _USED[phase]))

        def run() -> None:
            self._call("primitive_execute", primitive, self._stream, 3, arguments)
            self._call("stream_wait", self._stream)
        return run

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, f"dnnl_{name}")(*arguments)
        if status:
            raise RuntimeError(f"oneDNN's {name} failed with status {status}")

    def _any(self, shape: Sequence[int]) -> ctypes.c_void_p:
        """A tensor whose layout the convolution chooses."""
        described = ctypes.c_void_p()
        self._call("memory_desc_create_with_tag", ctypes.byref(described), len(shape), _dims(shape), _FLOAT32, _ANY)
        return described

    def _memory(self, primitive: ctypes.c_void_p, role: int) -> int | None:
        """Memory for an operand, in the layout that was chosen, with random numbers in it."""
        self._library.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        described = ctypes.c_void_p(self._library.dnnl_primitive_desc_query_md(primitive, _QUERY[role], 0))
        self._library.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        nbytes = self._library.dnnl_memory_desc_get_size(described)
        memory, address = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("memory_create", ctypes.byref(memory), described, self._engine, _ALLOCATE)
        self._call("memory_get_data_handle", memory, ctypes.byref(address))
        numbers = np.random.default_rng(0).standard_normal(nbytes // 4, np.float32)
        ctypes.memmove(address, numbers.ctypes.data, numbers.nbytes)
        return memory.value


def _dims(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


__all__ = ["BACKWARD_DATA", "BACKWARD_WEIGHT", "FORWARD", "OneDnn", "installed"]
