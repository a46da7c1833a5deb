"""CUDA forms of leaky, elu and selu; kernels/leaky.cu."""
from __future__ import annotations

from .operands import single
from .pointwise import define

define("_leaky", "leaky_forward_float32", lambda p: [single(p.slope)])
define("_leaky_backward", "leaky_backward_float32", lambda p: [single(p.slope)])
define("_elu", "elu_forward_float32", lambda p: [single(p.below), single(p.above)])
define("_elu_backward", "elu_backward_float32", lambda p: [single(p.below), single(p.above)])
