"""CUDA forms of the gamma function, its logarithm and that one's derivative; kernels/gamma.cu."""
from __future__ import annotations

from .pointwise import define

define("gamma", "gamma_forward_float32")
define("gammaln", "gammaln_forward_float32")
define("_digamma", "digamma_forward_float32")
