"""The modules with the C++ forms of the ops: every module of this package that registers any."""
from __future__ import annotations

import importlib
import pkgutil


def import_families() -> None:
    """Import them all, so that each registers its forms with `call.native_for`."""
    package = importlib.import_module(__name__.rpartition(".")[0])
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
