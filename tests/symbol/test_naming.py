"""Names of nodes: hints and numbers, prefixes, nesting."""
from __future__ import annotations

import threading

import pytest

import minigraph.symbol as sym
from minigraph.symbol.naming import NameManager, Prefix, current_names


@pytest.fixture(autouse=True)
def fresh_names():
    with NameManager():
        yield


def test_each_hint_counts_from_zero():
    data = sym.Variable("data")
    names = [sym.FullyConnected(data, num_hidden=1).name, sym.FullyConnected(data, num_hidden=1).name,
             sym.Activation(data, act_type="relu").name]
    assert names == ["fullyconnected0", "fullyconnected1", "activation0"]


def test_the_hint_is_the_spelling_that_was_called():
    data = sym.Variable("data")
    assert sym.identity(data).name == "identity0"
    assert sym._copy(data).name == "_copy0"
    assert sym.ElementWiseSum(data, data).name == "elementwisesum0"


def test_a_given_name_is_kept_and_uses_no_number():
    data = sym.Variable("data")
    assert sym.relu(data, name="mine").name == "mine"
    assert sym.relu(data).name == "relu0"


def test_prefix_stands_before_given_and_made_names_but_not_before_variables():
    with Prefix("net_"):
        data = sym.Variable("data")
        made, given = sym.relu(data), sym.relu(data, name="r")
        dense = sym.FullyConnected(data, num_hidden=2)
    assert (made.name, given.name) == ("net_relu0", "net_r")
    assert dense.list_arguments() == ["data", "net_fullyconnected0_weight", "net_fullyconnected0_bias"]


def test_managers_nest_and_the_outer_one_counts_on():
    data = sym.Variable("data")
    sym.relu(data)
    with NameManager():
        assert sym.relu(data).name == "relu0"
        with Prefix("p_"):
            assert sym.relu(data).name == "p_relu0"
        assert sym.relu(data).name == "relu1"
    assert sym.relu(data).name == "relu1"


def test_a_manager_is_left_when_an_exception_leaves_the_block():
    outer = current_names()
    with pytest.raises(KeyError), Prefix("p_"):
        raise KeyError
    assert current_names() is outer


def test_each_thread_has_its_own_manager():
    names = []
    with Prefix("here_"):
        thread = threading.Thread(target=lambda: names.append(sym.relu(sym.Variable("x")).name))
        thread.start()
        thread.join()
    assert names == ["relu0"]


@pytest.mark.parametrize("make, name", [
    (lambda a, b: a + b, "_plus0"), (lambda a, b: a - b, "_minus0"), (lambda a, b: a * b, "_mul0"),
    (lambda a, b: a / b, "_div0"), (lambda a, b: a ** b, "_power0"), (lambda a, b: a + 1, "_plusscalar0"),
    (lambda a, b: 1 + a, "_plusscalar0"), (lambda a, b: a - 1, "_minusscalar0"),
    (lambda a, b: 1 - a, "_rminusscalar0"), (lambda a, b: a * 2, "_mulscalar0"),
    (lambda a, b: 2 * a, "_mulscalar0"), (lambda a, b: a / 2, "_divscalar0"),
    (lambda a, b: 2 / a, "_rdivscalar0"),
    (lambda a, b: a ** 2, "_powerscalar0"), (lambda a, b: 2 ** a, "_rpowerscalar0"),
    (lambda a, b: -a, "_mulscalar0"), (lambda a, b: a == b, "_equal0"),
    (lambda a, b: a > 1, "_greater_scalar0"), (lambda a, b: 1 > a, "_lesser_scalar0"),
    (lambda a, b: a >= b, "_greater_equal0"), (lambda a, b: a <= b, "_lesser_equal0"),
    (lambda a, b: a < b, "_lesser0"),    (lambda a, b: a != 1, "_not_equal_scalar0"),
])
def test_operators_name_their_nodes_as_mxnet_does(make, name):
    assert make(sym.Variable("a"), sym.Variable("b")).name == name
