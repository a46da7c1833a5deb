"""The CUDA form of erfinv; kernels/transcendental.cu."""
from __future__ import annotations

from .pointwise import define

define("erfinv", "erfinv_forward_float32")
