"""The CUDA device, by PyCUDA and hand-written kernels.

Importing this package needs neither PyCUDA nor a GPU; both are looked for when a `gpu` context is first used. Read in
this order: driver and context, allocator and resources, modules, memory and staging, loading and program, device.
`launch` is what the families of kernels are written against.
"""
from __future__ import annotations

from .allocator import DeviceMemoryError
from .device import CudaDevice, cuda_device
from .driver import CudaUnavailableError, device_count
from .families import import_families

__all__ = ["CudaDevice", "CudaUnavailableError", "DeviceMemoryError", "cuda_device", "device_count", "import_families"]
