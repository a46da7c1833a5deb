"""MXNet's parts of `mx.nd`: `mx.nd.contrib.ROIAlign` is the function of the operator `_contrib_ROIAlign`."""
from __future__ import annotations

from ..symbol.namespaces import Namespace
from .functions import make_function
from .rearranging import boolean_mask, slice_assign, slice_assign_scalar

contrib = Namespace("minigraph.ndarray.contrib", "_contrib_", make_function)
contrib.boolean_mask = boolean_mask  # type: ignore[attr-defined]  # values are there, and with them its shape
image = Namespace("minigraph.ndarray.image", "_image_", make_function)
linalg = Namespace("minigraph.ndarray.linalg", "_linalg_", make_function)
op = Namespace("minigraph.ndarray.op", "", make_function)
_internal = Namespace("minigraph.ndarray._internal", "", make_function)
for _name in ("_slice_assign", "_crop_assign"):
    setattr(_internal, _name, slice_assign)
    setattr(_internal, f"{_name}_scalar", slice_assign_scalar)
