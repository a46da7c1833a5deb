"""The zoo's networks: parameters counted, shapes inferred, and what cannot be built refused."""
from __future__ import annotations

from math import prod

import pytest

import zoo
from minigraph.base import MXNetError


def parameters(symbol, shape: tuple[int, ...]) -> int:
    """Elements of all arguments but data and label."""
    shapes, _, _ = symbol.infer_shape(data=shape)
    return sum(prod(s) for name, s in zip(symbol.list_arguments(), shapes, strict=True)
               if name not in ("data", "softmax_label"))


def convolutions(symbol) -> int:
    return sum(1 for node in symbol.nodes() if node.op is not None and node.op.name == "Convolution")


@pytest.mark.parametrize("depth, count", [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032), (101, 44_549_160),
                                          (152, 60_192_808)])
def test_large_resnets_have_the_published_parameters(depth, count):
    assert parameters(zoo.get("resnet")(depth=depth), (1, 3, 224, 224)) == count


@pytest.mark.parametrize("depth, published", [(20, 0.27e6), (56, 0.85e6), (110, 1.7e6)])
def test_small_resnets_have_the_published_parameters_but_for_the_two_projections(depth, published):
    """The paper's shortcuts have no parameters; here two are 1x1 convolutions with norms, 2,752 parameters."""
    symbol = zoo.get("resnet")(10, depth=depth, image_shape=(3, 32, 32))
    count = parameters(symbol, (1, 3, 32, 32)) - (16 * 32 + 32 * 64 + 2 * 32 + 2 * 64)
    assert round(count / 1e6, 2 if published < 1e6 else 1) == published / 1e6


def test_resnet_1001_of_version_2_has_the_published_parameters():
    symbol = zoo.get("resnet")(10, depth=1001, version=2, image_shape=(3, 32, 32))
    assert round(parameters(symbol, (1, 3, 32, 32)) / 1e6, 1) == 10.3


@pytest.mark.parametrize("depth, image_shape, projections", [
    (20, (3, 32, 32), 2), (164, (3, 32, 32), 3), (29, (1, 8, 8), 3), (50, (3, 224, 224), 4), (18, (3, 224, 224), 3)])
@pytest.mark.parametrize("version", [1, 2])
def test_depth_counts_the_convolutions_off_the_shortcuts_and_the_last_layer(version, depth, image_shape, projections):
    symbol = zoo.get("resnet")(10, depth=depth, version=version, image_shape=image_shape)
    assert convolutions(symbol) + 1 == depth + projections


@pytest.mark.parametrize("units", [(3, 4, 6, 3), "3,4,6,3"])
def test_units_give_the_same_network_as_their_depth(units):
    by_units, by_depth = zoo.get("resnet")(units=units), zoo.get("resnet")(depth=50)
    assert by_units.tojson() == by_depth.tojson()


@pytest.mark.parametrize("network, settings, shape", [
    ("mlp", {}, (2, 784)), ("mlp", {"hidden": ()}, (2, 1, 8, 8)), ("lenet", {}, (2, 1, 28, 28)),
    ("resnet", {"depth": 20, "image_shape": (1, 8, 8)}, (2, 1, 8, 8)),
    ("resnet", {"depth": 18, "version": 2}, (2, 3, 224, 224)),
    ("resnet", {"units": (1, 1), "bottleneck": False, "image_shape": (3, 40, 40)}, (2, 3, 40, 40))])
def test_every_network_ends_in_probabilities_of_its_classes(network, settings, shape):
    symbol = zoo.get(network)(num_classes=7, **settings)
    assert symbol.list_outputs() == ["softmax_output"]
    assert symbol.infer_shape(data=shape)[1] == [(2, 7)]


@pytest.mark.parametrize("stride_on, sides", [("1x1", (28, 28)), ("3x3", (56, 28))])
def test_the_stride_of_a_bottleneck_is_where_it_is_asked_for(stride_on, sides):
    internals = zoo.get("resnet")(depth=50, stride_on=stride_on).get_internals()
    found = [internals[f"stage2_unit1_conv{k}_output"].infer_shape(data=(1, 3, 224, 224))[1][0][2] for k in (1, 2)]
    assert tuple(found) == sides


def test_only_the_norm_of_the_data_has_a_fixed_gamma():
    symbol = zoo.get("resnet")(10, depth=20, version=2, image_shape=(3, 32, 32))
    norms = {node.name: node.params for node in symbol.nodes() if node.op is not None and node.op.name == "BatchNorm"}
    assert [name for name, params in norms.items() if params.fix_gamma] == ["bn_data"]
    assert {(params.eps, params.momentum) for params in norms.values()} == {(2e-5, 0.9)}


@pytest.mark.parametrize("settings, reason", [
    ({"depth": 51}, "known depths"), ({"depth": 21, "image_shape": (3, 32, 32)}, "neither 6n\\+2"),
    ({"depth": 2, "image_shape": (3, 32, 32)}, "neither 6n\\+2"), ({"units": "3,a"}, "must be integers"),
    ({"units": (0, 1)}, "1 or more"), ({"depth": 50, "units": (1, 1, 1, 1)}, "are 14 layers"),
    ({"version": 3}, "version must be 1 or 2"), ({"stride_on": "5x5"}, "stride_on"),
    ({"image_shape": (32, 32)}, "image_shape must be")])
def test_a_resnet_that_cannot_be_is_refused_with_the_reason(settings, reason):
    with pytest.raises(MXNetError, match=reason):
        zoo.get("resnet")(**settings)


def test_other_networks_refuse_what_does_not_fit():
    with pytest.raises(MXNetError, match="needs 16x16"):
        zoo.get("lenet")(image_shape=(1, 8, 8))
    with pytest.raises(MXNetError, match="1 or more wide"):
        zoo.get("mlp")(hidden=(8, 0))
    with pytest.raises(MXNetError, match="no network 'vgg0'; it has"):
        zoo.get("vgg0")
