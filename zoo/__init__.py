"""Networks, data sets and training scripts on top of minigraph; installed as `minigraph.zoo`.

A network is a module with `get_symbol(num_classes, **kw)`, which returns a symbol that reads `data` and
`softmax_label`; `get("resnet")` finds it by its name.
"""
from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from minigraph.base import MXNetError

NETWORKS = ("alexnet", "bert", "densenet", "googlenet", "gpt", "inception_bn", "inception_resnet_v2", "inception_v3",
            "inception_v4", "lenet", "lstm", "mlp", "mobilenet", "resnet", "squeezenet", "unet", "vgg")
"""Names that `get` knows; each is a module of this package."""


def get(name: str) -> Callable[..., Any]:
    """The `get_symbol` of a network; MXNetError names the known ones if there is none of that name."""
    if name not in NETWORKS:
        raise MXNetError(f"the zoo has no network {name!r}; it has {', '.join(NETWORKS)}")
    return importlib.import_module(f".{name}", __name__).get_symbol
