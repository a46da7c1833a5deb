"""MXNet's parts of mx.sym: operators by what follows the prefix of their name."""
from __future__ import annotations

import json

import pytest

import minigraph.symbol as sym


def test_a_part_names_the_operators_of_its_prefix_and_their_nodes_by_the_rest():
    with sym.NameManager():
        loss = sym.contrib.ctc_loss(sym.Variable("d"), sym.Variable("l"))
    assert loss.list_outputs() == ["ctc_loss0_output0"]
    node = json.loads(loss.tojson())["nodes"][-1]
    assert (node["op"], node["name"]) == ("CTCLoss", "ctc_loss0")
    assert "ctc_loss" in dir(sym.contrib) and sym.contrib.ctc_loss is sym.contrib.ctc_loss


def test_what_a_part_has_not_is_an_attribute_error_that_says_why():
    with pytest.raises(AttributeError, match=r"minigraph.symbol.linalg has no 'nothing', and no operator is named"):
        _ = sym.linalg.nothing
    with pytest.raises(AttributeError, match="has no 'boolean_mask': the shape of its output depends on values"):
        _ = sym.contrib.boolean_mask
    assert not hasattr(sym.image, "__wrapped__")
