"""The CPU device: arenas in RAM, every op by its NumPy definition."""
from .device import CpuDevice

__all__ = ["CpuDevice"]
