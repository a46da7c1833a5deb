"""minigraph: deep learning on static graphs, in the manner of MXNet 1.x, with memory planned ahead.

`import minigraph as mx` offers MXNet's names. Modules are imported when they are first used, so that
importing the package costs next to nothing.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import (
        callback,
        image,
        initializer,
        io,
        kvstore,
        lr_scheduler,
        metric,
        model,
        module,
        ndarray,
        operator,
        optimizer,
        plan,
        random,
        recordio,
        rnn,
        runtime,
        symbol,
    )
    from . import initializer as init
    from . import module as mod
    from . import monitor as mon
    from . import ndarray as nd
    from . import symbol as sym
    from . import visualization as viz
    from .base import MXNetError
    from .context import Context, cpu, cpu_pinned, current_context, gpu, num_gpus
    from .custom import REQUIRED, Op, param, register
    from .device.cpu import get_num_threads, set_num_threads
    from .monitor import Monitor
    from .sizing import largest
    from .symbol import naming as name
    from .symbol.attribute import AttrScope

_MODULES = {"attribute": "symbol.attribute", "base": "base", "callback": "callback", "context": "context",
            "executor": "executor",
            "image": "image", "img": "image", "init": "initializer", "initializer": "initializer", "io": "io",
            "kv": "kvstore", "kvstore": "kvstore",
            "lr_scheduler": "lr_scheduler", "metric": "metric", "mod": "module", "model": "model",
            "module": "module", "mon": "monitor", "monitor": "monitor", "name": "symbol.naming", "nd": "ndarray",
            "ndarray": "ndarray", "operator": "operator", "opt": "optimizer", "optimizer": "optimizer", "plan": "plan",
            "profiler": "profiler", "random": "random", "recordio": "recordio", "rnd": "random", "rnn": "rnn",
            "runtime": "runtime", "sym": "symbol", "symbol": "symbol", "test_utils": "test_utils",
            "visualization": "visualization", "viz": "visualization"}
"""Module behind each name."""
_OBJECTS = {"AttrScope": "symbol.attribute", "Context": "context", "MXNetError": "base", "cpu": "context",
            "cpu_pinned": "context", "current_context": "context", "gpu": "context", "num_gpus": "context",
            "Monitor": "monitor", "Op": "custom", "REQUIRED": "custom", "param": "custom", "register": "custom",
            "largest": "sizing", "get_num_threads": "device.cpu", "set_num_threads": "device.cpu"}
"""Module that defines each object."""
_INSTEAD = {"autograd": "bind a symbol, and call forward and backward",
            "contrib": "operators are mx.sym's",
            "gluon": "networks are symbols, and mx.mod.Module trains them"}
"""What serves in the place of MXNet's modules that there are not."""

__all__ = ["REQUIRED", "AttrScope", "Context", "MXNetError", "Monitor", "Op", "__version__", "callback", "cpu",
           "cpu_pinned", "current_context", "get_num_threads", "gpu", "image", "init", "initializer", "io", "kvstore",
           "largest", "lr_scheduler", "metric", "mod", "model", "module", "mon", "monitor", "name", "nd", "ndarray",
           "num_gpus", "operator", "optimizer", "param", "plan", "profiler", "random", "recordio", "register", "rnn",
           "runtime", "set_num_threads", "sym", "symbol", "test_utils", "visualization", "viz"]


def __getattr__(name: str) -> Any:
    """Import what is behind a public name, once."""
    if name in _MODULES:
        value = importlib.import_module(f".{_MODULES[name]}", __name__)
    elif name in _OBJECTS:
        value = getattr(importlib.import_module(f".{_OBJECTS[name]}", __name__), name)
    else:
        instead = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{instead}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_OBJECTS})
