"""The modules with the CUDA forms of the ops: every module of this package that registers any."""
from __future__ import annotations

import importlib
import pkgutil
from functools import cache


@cache
def import_families() -> None:
    """Import them all, so that each registers its forms with `launch.kernels_for`; once."""
    package = importlib.import_module(__name__.rpartition(".")[0])
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
