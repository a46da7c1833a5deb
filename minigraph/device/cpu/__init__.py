"""The CPU device: arenas in RAM, ops by C++ kernels or their NumPy definitions; copy threads swap to host memory or a
file.
"""
from .device import CpuDevice
from .native.library import get_num_threads, set_num_threads
from .streams import Delay

__all__ = ["CpuDevice", "Delay", "get_num_threads", "set_num_threads"]
