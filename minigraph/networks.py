"""Networks and settings named by texts, as on a command line: `zoo.resnet`, a Python file, a `-symbol.json`."""
from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from . import symbol
from .base import MXNetError, Shape

_PACKAGE = __package__ or "minigraph"


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """{"depth": 20, "units": (3, 4)} from ["depth=20", "units=3,4"]: Python literals, and else plain texts."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise MXNetError(f"{text!r} is no setting; write NAME=VALUE, such as depth=20")
        if name in settings:
            raise MXNetError(f"{name} is set twice")
        settings[name] = _literal(value)
    return settings


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def parse_shapes(texts: Iterable[str]) -> dict[str, Shape]:
    """{"data": (16, 3, 224, 224)} from ["data=16,3,224,224"]; every dimension must be 1 or more."""
    shapes: dict[str, Shape] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            shape = tuple(int(part) for part in value.strip("()").rstrip(",").split(","))
        except ValueError:
            shape = ()
        if not equals or not name or not shape or min(shape) < 1:
            raise MXNetError(f"{text!r} is no shape; write NAME=N,C,H,W with whole numbers of 1 or more, such as "
                             f"data=16,3,224,224")
        if name in shapes:
            raise MXNetError(f"the shape of {name} is given twice")
        shapes[name] = shape
    return shapes


def load_network(network: str, settings: Mapping[str, Any], shapes: Mapping[str, Shape]) -> symbol.Symbol:
    """The symbol that a text names; MXNetError in one sentence for everything that can be wrong with it.

    `network` is a file ending in `.json` (MXNet's `-symbol.json`) or `.py`, or a module, `zoo.NAME` for those of the
    zoo. A Python file or module has a `get_symbol`, which is called with `settings`; when it takes an `image_shape`
    that is not among them, it gets that of `shapes["data"]` without the batch.
    """
    if network.endswith(".json"):
        if settings:
            raise MXNetError(f"{network} is a finished symbol and takes no settings, got {', '.join(settings)}")
        return symbol.load(network)
    module = _from_file(network) if network.endswith(".py") else _from_name(network)
    get_symbol = getattr(module, "get_symbol", None)
    if not callable(get_symbol):
        raise MXNetError(f"{network} has no function get_symbol")
    return _call(network, get_symbol, _with_image_shape(get_symbol, settings, shapes))


def _from_file(path: str) -> ModuleType:
    if not Path(path).is_file():
        raise MXNetError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise MXNetError(f"{path} cannot be run: {_describe(error)}") from error
    return module


def _from_name(name: str) -> ModuleType:
    """A module by its name; `zoo.NAME` is the installed zoo's, or that of a checkout in the current folder."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise MXNetError(f"{name!r} is no network; give zoo.NAME (such as zoo.resnet), a module, a Python file, or a "
                         f"-symbol.json file")
    inside = name == "zoo" or name.startswith("zoo.")
    for candidate in ([f"{_PACKAGE}.{name}"] if inside else []) + [name]:
        try:
            return importlib.import_module(candidate)
        except ModuleNotFoundError as error:
            if error.name is None or not (candidate == error.name or candidate.startswith(error.name + ".")):
                raise MXNetError(f"{name} cannot be imported: {_describe(error)}") from error
        except Exception as error:
            raise MXNetError(f"{name} cannot be imported: {_describe(error)}") from error
    raise MXNetError(f"there is no network {name}; give zoo.NAME (such as zoo.resnet), a module, a Python file, or a "
                     f"-symbol.json file")


def _with_image_shape(get_symbol: Callable[..., Any], settings: Mapping[str, Any],
                      shapes: Mapping[str, Shape]) -> dict[str, Any]:
    data = shapes.get("data", ())
    wants = "image_shape" in inspect.signature(get_symbol).parameters and "image_shape" not in settings
    return {**settings, "image_shape": data[1:]} if wants and len(data) == 4 else dict(settings)


def _call(network: str, get_symbol: Callable[..., Any], settings: Mapping[str, Any]) -> symbol.Symbol:
    try:
        inspect.signature(get_symbol).bind(**settings)
    except TypeError as error:
        raise MXNetError(f"{network}: get_symbol{inspect.signature(get_symbol)}: {error}") from error
    try:
        made = get_symbol(**settings)
    except MXNetError:
        raise
    except Exception as error:
        raise MXNetError(f"{network}: get_symbol failed: {_describe(error)}") from error
    if not isinstance(made, symbol.Symbol):
        raise MXNetError(f"{network}: get_symbol returned a {type(made).__name__}, not a Symbol")
    return made


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
