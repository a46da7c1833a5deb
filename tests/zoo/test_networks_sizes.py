"""The zoo's networks have the published numbers of parameters, and the published sizes at every stage."""
from __future__ import annotations

from math import prod
from typing import Any

import pytest

import zoo
from minigraph.base import MXNetError
from zoo import bert, gpt, lstm

IMAGE, LARGER, ALEXNET = (2, 3, 224, 224), (2, 3, 299, 299), (2, 3, 227, 227)
SMALL = (2, 3, 32, 32)
INPUTS = ("data", "segments", "length")


def shapes_of(symbol: Any, data: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Shapes of all arguments."""
    shapes, _, _ = symbol.infer_shape(data=data)
    return dict(zip(symbol.list_arguments(), shapes, strict=True))


def parameters(symbol: Any, data: tuple[int, ...]) -> int:
    """Elements of all arguments but inputs and labels."""
    return sum(prod(s) for n, s in shapes_of(symbol, data).items() if n not in INPUTS and not n.endswith("label"))


TORCHVISION = [
    ("alexnet", {}, IMAGE, 61_100_840),
    ("vgg", {"depth": 11}, IMAGE, 132_863_336), ("vgg", {"depth": 11, "batch_norm": True}, IMAGE, 132_868_840),
    ("vgg", {"depth": 13}, IMAGE, 133_047_848), ("vgg", {"depth": 13, "batch_norm": True}, IMAGE, 133_053_736),
    ("vgg", {"depth": 16}, IMAGE, 138_357_544), ("vgg", {"depth": 16, "batch_norm": True}, IMAGE, 138_365_992),
    ("vgg", {"depth": 19}, IMAGE, 143_667_240), ("vgg", {"depth": 19, "batch_norm": True}, IMAGE, 143_678_248),
    ("googlenet", {}, IMAGE, 6_624_904),
    ("inception_v3", {}, LARGER, 23_834_568), ("inception_v3", {"aux": True}, LARGER, 27_161_264),
    ("resnet", {"depth": 50}, IMAGE, 25_557_032),
    ("resnet", {"depth": 50, "width_per_group": 128}, IMAGE, 68_883_240),
    ("resnet", {"depth": 101, "width_per_group": 128}, IMAGE, 126_886_696),
    ("resnet", {"depth": 50, "groups": 32, "width_per_group": 4}, IMAGE, 25_028_904),
    ("resnet", {"depth": 101, "groups": 32, "width_per_group": 8}, IMAGE, 88_791_336),
    ("resnet", {"depth": 101, "groups": 64, "width_per_group": 4}, IMAGE, 83_455_272),
    ("densenet", {"depth": 121}, IMAGE, 7_978_856), ("densenet", {"depth": 161}, IMAGE, 28_681_000),
    ("densenet", {"depth": 169}, IMAGE, 14_149_480), ("densenet", {"depth": 201}, IMAGE, 20_013_928),
    ("mobilenet", {"version": 2}, IMAGE, 3_504_872),
    ("squeezenet", {"version": "1.0"}, IMAGE, 1_248_424), ("squeezenet", {"version": 1.1}, IMAGE, 1_235_496),
]
"""Network, settings, input, and what torchvision's model of that name has."""

OTHERS = [
    ("alexnet", {"variant": "superneurons"}, ALEXNET, 62_378_344),      # 62.4 M, one column without groups
    ("inception_bn", {}, IMAGE, 11_295_240),                            # BN-Inception, with biases of convolutions
    ("inception_v4", {}, LARGER, 42_679_816),                           # timm: inception_v4
    ("inception_resnet_v2", {}, LARGER, 55_843_464),                    # timm: inception_resnet_v2
    ("mobilenet", {"version": 1}, IMAGE, 4_231_976),                    # timm: mobilenetv1_100; Keras' trainable ones
    ("unet", {}, (2, 1, 572, 572), 31_030_658),
    ("unet", {"dims": 3, "num_classes": 3}, (2, 3, 132, 132, 116), 19_069_955),     # said in the paper
    ("lstm", {}, (2, 35), 19_780_400),                                  # "medium", 20 M
    ("lstm", {"hidden": 1500}, (2, 35), 66_034_000),                    # "large", 66 M
    ("lstm", {"tied": True}, (2, 35), 19_780_400 - 10_000 * 650),
    ("bert", {}, (2, 128), 109_514_298),                                # Transformers: BertForMaskedLM, base, uncased
    ("bert", {"size": "large", "seq_len": 512}, (2, 512), 335_174_458),
    ("bert", {"num_classes": 2}, (2, 128), 109_482_240 + 2 * 769),      # BertModel with its pooler, and a classifier
    ("gpt", {}, (2, 1024), 124_439_808), ("gpt", {"size": "medium"}, (2, 1024), 354_823_168),   # GPT-2 of that name
    ("gpt", {"size": "large"}, (2, 1024), 774_030_080), ("gpt", {"size": "xl"}, (2, 1024), 1_557_611_200),
    ("gpt", {"tied": False}, (2, 1024), 124_439_808 + 50_257 * 768),
]
"""The same, from where the comment says."""


def named(case: Any) -> str:
    return str(case).replace(" ", "") if isinstance(case, (dict, str)) else ""


@pytest.mark.parametrize(("network", "settings", "data", "count"), TORCHVISION + OTHERS, ids=named)
def test_every_network_has_the_published_number_of_parameters(network, settings, data, count):
    assert parameters(zoo.get(network)(**settings), data) == count


def test_wide_resnet_28_10_has_the_published_parameters():
    """36.5 M; the normalisation of the data adds 6."""
    symbol = zoo.get("resnet")(10, units=(4, 4, 4), bottleneck=False, version=2, widen=10, image_shape=(3, 32, 32))
    assert parameters(symbol, SMALL) == 36_479_194 + 6


def test_densenet_264_has_a_third_of_resnet_152_and_more():
    assert round(parameters(zoo.get("densenet")(depth=264), IMAGE) / 1e6, 1) == 33.3


@pytest.mark.parametrize(("depth", "more"), [(116, 20), (216, 40), (316, 60), (416, 80)])
def test_the_deep_vggs_add_as_many_convolutions_to_every_group(depth, more):
    widths = (64, 128, 256, 512, 512)
    added = more * sum(9 * width * width + width for width in widths)
    symbol = zoo.get("vgg")(depth=depth)
    assert parameters(symbol, IMAGE) == 138_357_544 + added
    assert sum(1 for n in symbol.list_arguments() if n.endswith("_weight")) == depth


@pytest.mark.parametrize(("network", "settings", "count"), [
    ("inception_v4", {}, 149), ("inception_v3", {}, 94), ("inception_resnet_v2", {}, 244), ("googlenet", {}, 57)])
def test_inceptions_have_the_published_number_of_convolutions(network, settings, count):
    symbol = zoo.get(network)(**settings)
    assert sum(1 for n in symbol.nodes() if n.op is not None and n.op.name == "Convolution") == count


STAGES: list[tuple[str, dict[str, Any], tuple[int, ...], dict[str, tuple[int, ...]]]] = [
    ("alexnet", {}, IMAGE, {"conv1": (64, 55, 55), "pool1": (64, 27, 27), "conv2": (192, 27, 27),
                            "pool2": (192, 13, 13), "conv3": (384, 13, 13),
                            "conv5": (256, 13, 13), "pool5": (256, 6, 6), "fc6": (4096,)}),
    ("alexnet", {"variant": "superneurons"}, ALEXNET,
     {"conv1": (96, 55, 55), "norm1": (96, 55, 55), "pool1": (96, 27, 27), "conv2": (256, 27, 27),
      "pool2": (256, 13, 13), "conv4": (384, 13, 13), "pool5": (256, 6, 6), "fc7": (4096,)}),
    ("vgg", {}, IMAGE, {"conv1_2": (64, 224, 224), "pool1": (64, 112, 112), "pool2": (128, 56, 56),
                        "pool3": (256, 28, 28), "pool4": (512, 14, 14), "pool5": (512, 7, 7)}),
    ("googlenet", {}, IMAGE, {"conv1": (64, 112, 112), "pool1": (64, 56, 56), "pool2": (192, 28, 28),
                              "in3a": (256, 28, 28), "in3b": (480, 28, 28), "pool3": (480, 14, 14),
                              "in4a": (512, 14, 14), "in4e": (832, 14, 14), "pool4": (832, 7, 7),
                              "in5b": (1024, 7, 7)}),
    ("inception_bn", {}, IMAGE, {"pool1": (64, 56, 56), "pool2": (192, 28, 28), "in3a": (256, 28, 28),
                                 "in3b": (320, 28, 28), "in3c": (576, 14, 14), "in4a": (576, 14, 14),
                                 "in4d": (608, 14, 14), "in4e": (1056, 7, 7), "in5b": (1024, 7, 7)}),
    ("inception_v3", {}, LARGER, {"stem1_3": (64, 147, 147), "pool1": (64, 73, 73), "stem2_2": (192, 71, 71),
                                  "pool2": (192, 35, 35), "5b": (256, 35, 35), "5d": (288, 35, 35), "6a": (768, 17, 17),
                                  "6e": (768, 17, 17), "7a": (1280, 8, 8), "7c": (2048, 8, 8)}),
    ("inception_v4", {}, LARGER, {"stem2_join": (160, 73, 73), "stem3_join": (192, 71, 71), "stem4_join": (384, 35, 35),
                                  "a4": (384, 35, 35), "ra": (1024, 17, 17), "b7": (1024, 17, 17), "rb": (1536, 8, 8),
                                  "c3": (1536, 8, 8)}),
    ("inception_resnet_v2", {}, LARGER, {"pool2": (192, 35, 35), "stem": (320, 35, 35), "a10_relu": (320, 35, 35),
                                         "ra": (1088, 17, 17), "b20_relu": (1088, 17, 17), "rb": (2080, 8, 8),
                                         "c10_sum": (2080, 8, 8), "last_relu": (1536, 8, 8)}),
    ("resnet", {"depth": 50, "groups": 32, "width_per_group": 4}, IMAGE,
     {"stage1_unit1_conv2": (128, 56, 56), "stage1_unit3_relu": (256, 56, 56), "stage2_unit1_conv2": (256, 28, 28),
      "stage3_unit6_relu": (1024, 14, 14), "stage4_unit3_conv2": (1024, 7, 7), "stage4_unit3_relu": (2048, 7, 7)}),
    ("resnet", {"depth": 50, "width_per_group": 128}, IMAGE,
     {"stage1_unit1_conv2": (128, 56, 56), "stage1_unit3_relu": (256, 56, 56), "stage4_unit3_conv2": (1024, 7, 7),
      "stage4_unit3_relu": (2048, 7, 7)}),
    ("densenet", {}, IMAGE, {"pool0": (64, 56, 56), "block1_layer6_join": (256, 56, 56), "transition1_pool":
                             (128, 28, 28), "block2_layer12_join": (512, 28, 28), "transition2_pool": (256, 14, 14),
                             "block3_layer24_join": (1024, 14, 14), "transition3_pool": (512, 7, 7),
                             "block4_layer16_join": (1024, 7, 7)}),
    ("mobilenet", {"version": 1}, IMAGE, {"conv0": (32, 112, 112), "conv1": (64, 112, 112), "conv3": (128, 56, 56),
                                          "conv5": (256, 28, 28), "conv11": (512, 14, 14), "conv13": (1024, 7, 7)}),
    ("mobilenet", {}, IMAGE, {"conv0": (32, 112, 112), "stage1_block1_narrow": (16, 112, 112), "stage2_block2_sum":
                              (24, 56, 56), "stage3_block3_sum": (32, 28, 28), "stage4_block4_sum": (64, 14, 14),
                              "stage5_block3_sum": (96, 14, 14), "stage6_block3_sum": (160, 7, 7),
                              "stage7_block1_narrow": (320, 7, 7), "last": (1280, 7, 7)}),
    ("squeezenet", {"version": "1.0"}, IMAGE, {"conv1": (96, 109, 109), "pool1": (96, 54, 54), "fire4": (256, 54, 54),
                                               "pool2": (256, 27, 27), "fire8": (512, 27, 27), "pool3": (512, 13, 13),
                                               "conv10": (1000, 13, 13)}),
    ("squeezenet", {}, IMAGE, {"conv1": (64, 111, 111), "pool1": (64, 55, 55), "fire3": (128, 55, 55),
                               "pool2": (128, 27, 27), "fire5": (256, 27, 27), "pool3": (256, 13, 13),
                               "conv10": (1000, 13, 13)}),
    ("unet", {}, (2, 1, 572, 572), {"down1_conv2": (64, 568, 568), "pool1": (64, 284, 284), "down2_conv2":
                                    (128, 280, 280), "down3_conv2": (256, 136, 136), "down4_conv2": (512, 64, 64),
                                    "bottom_conv2": (1024, 28, 28), "up4": (512, 56, 56), "join4": (1024, 56, 56),
                                    "up4_conv2": (512, 52, 52), "up3_conv2": (256, 100, 100), "up2_conv2":
                                    (128, 196, 196), "up1_conv2": (64, 388, 388), "last": (2, 388, 388)}),
    ("unet", {"dims": 3, "num_classes": 3}, (1, 3, 132, 132, 116),
     {"down1_conv1": (32, 130, 130, 114), "down1_conv2": (64, 128, 128, 112), "bottom_conv2": (512, 9, 9, 7),
      "join3": (768, 18, 18, 14), "up1_conv2": (64, 44, 44, 28), "last": (3, 44, 44, 28)}),
    ("lstm", {}, (2, 35), {"embed": (35, 650), "lstm_l0_t0_h2h": (2600,), "lstm_l1_rows": (35, 650),
                           "pred": (35, 10000)}),
    ("bert", {}, (2, 128), {"embed_sum": (128, 768), "layer0_inner": (128, 3072), "layer11_norm2": (128, 768),
                            "decoder": (128, 30522)}),
    ("gpt", {"size": "medium"}, (2, 1024), {"embed_sum": (1024, 1024), "layer23_inner": (1024, 4096),
                                            "decoder": (1024, 50257)}),
]
"""Network, settings, input, and shapes of layers' outputs without the batch, as papers and torchvision's models have
them."""


@pytest.mark.parametrize(("network", "settings", "data", "stages"), STAGES, ids=named)
def test_every_stage_has_the_published_size(network, settings, data, stages):
    internals = zoo.get(network)(**settings).get_internals()
    _, outputs, _ = internals.infer_shape(data=data)
    found = dict(zip(internals.list_outputs(), outputs, strict=True))
    assert {name: found[f"{name}_output"] for name in stages} == {n: (data[0], *s) for n, s in stages.items()}


@pytest.mark.parametrize(("network", "settings", "data"), [
    (n, s, d) for n, s, d, *_ in (*TORCHVISION, *OTHERS[:5]) if not s.get("aux")], ids=named)
def test_image_networks_end_in_probabilities_of_their_classes(network, settings, data):
    symbol = zoo.get(network)(num_classes=7, **settings)
    assert symbol.list_outputs() == ["softmax_output"] and symbol.infer_shape(data=data)[1] == [(2, 7)]
    assert shapes_of(symbol, data)["softmax_label"] == (2,)


def test_the_second_classifier_of_inception_v3_has_the_same_labels():
    symbol = zoo.get("inception_v3")(7, aux=True)
    assert symbol.list_outputs() == ["softmax_output", "aux_output"]
    assert symbol.list_arguments().count("softmax_label") == 1


# -- odd sizes -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [(572, 572), (571, 571), (573, 573), (97, 65), (16, 17)])
@pytest.mark.parametrize("odd", ["crop", "pad"])
def test_a_padded_unet_takes_any_size_and_follows_its_rule(size, odd):
    symbol = zoo.get("unet")(padded=True, odd=odd, image_shape=(1, *size))
    output = symbol.infer_shape(data=(2, 1, *size))[1][0]
    halved = [size]
    for _ in range(4):
        halved.append(tuple(n // 2 for n in halved[-1]))
    whole = size if odd == "pad" else tuple(16 * n for n in halved[-1])
    assert output == (2, 2, *whole)
    shapes = shapes_of(symbol, (2, 1, *size))
    assert prod(shapes["softmax_label"]) == 2 * prod(whole)


def test_an_unpadded_unet_crops_the_middle():
    symbol = zoo.get("unet")(levels=1, filters=2, image_shape=(1, 21, 20))
    crop, = (n.params for n in symbol.nodes() if n.name == "join1_crop")
    assert str(crop.begin) == "(None, None, 4, 4)" and str(crop.end) == "(None, None, 12, 12)"   # of 17 x 16, 8 x 8


def test_a_unet_says_where_an_image_is_too_small():
    for settings, match in (({"image_shape": (1, 40, 40)}, r"unet: down4_conv1 has nothing left .*\(1, 1\)"),
                            ({"padded": True, "image_shape": (1, 8, 40)}, r"pool4 cannot halve .*\(1, 5\)"),
                            ({"odd": "pad"}, "needs padded=True"), ({"dims": 4}, "dims must be 2 or 3"),
                            ({"dims": 3, "image_shape": (1, 40, 40)}, "3 sizes")):
        with pytest.raises(MXNetError, match=match):
            zoo.get("unet")(**settings)


# -- what is refused -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("network", "settings", "match"), [
    ("alexnet", {"variant": "three-tower"}, "one-tower, superneurons, got 'three-tower'"),
    ("vgg", {"depth": 17}, "116, 216, 316 and 416, got 17"), ("vgg", {"depth": 6}, "got 6"),
    ("densenet", {"depth": 100}, "121, 161.*got 100"), ("mobilenet", {"version": 3}, "1 or 2, got 3"),
    ("squeezenet", {"version": 2}, "1.0, 1.1, got 2"), ("lstm", {"tied": True, "embed": 3}, "embed=3 and hidden=650"),
    ("bert", {"size": "huge"}, "'huge'"), ("bert", {"seq_len": 513}, "places=512"), ("gpt", {"seq_len": 2000}, "2000"),
    ("gpt", {"heads": 5}, "hidden=768 cannot be cut into 5 heads"),
    ("resnet", {"depth": 18, "groups": 2}, "need bottlenecks"), ("resnet", {"widen": 0}, "1 or more, got 0")])
def test_what_cannot_be_built_is_refused(network, settings, match):
    with pytest.raises(MXNetError, match=f"{network if network != 'gpt' else ''}.*{match}"):
        zoo.get(network)(**settings)


# -- words ---------------------------------------------------------------------------------------------------
def test_sentences_of_all_lengths_share_the_parameters_of_the_language_model():
    generate = lstm.sym_gen(20, hidden=6, layers=2)
    arguments = []
    for seq_len in (1, 2, 7):
        symbol, data_names, label_names = generate(seq_len)
        assert (data_names, label_names) == (("data",), ("softmax_label",))
        shapes = shapes_of(symbol, (3, seq_len))
        assert shapes.pop("data") == shapes.pop("softmax_label") == (3, seq_len)
        arguments.append(shapes)
    assert arguments[0] == arguments[1] == arguments[2] and len(arguments[0]) == 11


def test_texts_of_all_lengths_share_the_parameters_of_the_transformers():
    for network, data in ((bert, "vocabulary"), (gpt, "num_classes")):
        settings = {data: 20, "depth": 1, "hidden": 8, "heads": 2, "places": 6}
        short, long = (shapes_of(network.get_symbol(seq_len=n, **settings), (3, n)) for n in (2, 6))
        assert short.pop("data") == (3, 2) and long.pop("data") == (3, 6)
        assert {n: s for n, s in short.items() if n != "softmax_label"} == {
            n: s for n, s in long.items() if n != "softmax_label"}


def test_further_inputs_of_bert_have_their_shapes():
    shapes = shapes_of(bert.get_symbol(2, depth=1, segments=True, lengths=True), (3, 128))
    assert shapes["segments"] == (3, 128) and shapes["length"] == (3,) and shapes["softmax_label"] == (3,)
