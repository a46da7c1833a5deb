"""The package itself: its names, and that importing it does nothing yet."""
from __future__ import annotations

import subprocess
import sys

import pytest

import minigraph as mx


def test_every_public_name_is_there():
    for name in mx.__all__:
        assert getattr(mx, name) is not None, name
    assert set(mx.__all__) <= set(dir(mx))


def test_mxnets_short_names_are_the_modules():
    assert mx.sym is mx.symbol and mx.nd is mx.ndarray and mx.mod is mx.module and mx.init is mx.initializer
    assert mx.name.Prefix is mx.sym.Prefix and mx.AttrScope is mx.sym.AttrScope


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'minigraph' has no attribute 'graphs'$"):
        _ = mx.graphs


@pytest.mark.parametrize("module, name, instead", [
    (mx, "gluon", "mx.mod.Module trains"), (mx.sym, "Nonesuch", "minigraph.register")])
def test_a_name_of_mxnets_that_there_is_not_tells_what_serves_in_its_place(module, name, instead):
    with pytest.raises(AttributeError, match=f"{name}.*{instead}"):
        getattr(module, name)


def test_importing_the_package_imports_none_of_its_modules():
    code = "import sys, minigraph; sys.exit(sum(name.startswith('minigraph.') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
