"""The source checkout that minigraph may run from, and its build scripts, which no installation has."""
from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

CHECKOUT = Path(__file__).resolve().parents[2]
"""The checkout's folder, when minigraph runs from one."""


def checkout_script(name: str, *parts: str) -> ModuleType | None:
    """The checkout's script at a path of these parts, loaded as the module `name`; None where there is none."""
    path = CHECKOUT.joinpath(*parts)
    spec = importlib.util.spec_from_file_location(name, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
