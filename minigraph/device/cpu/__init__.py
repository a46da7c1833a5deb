"""The CPU device: arenas in RAM, every op by its NumPy definition; copy threads swap to host memory or a file."""
from .device import CpuDevice
from .streams import Delay

__all__ = ["CpuDevice", "Delay"]
