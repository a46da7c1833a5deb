"""Augmentation, step by step: known pixels, other people's implementations, and what random numbers may give."""
from __future__ import annotations

import colorsys

import numpy as np
import pytest

from minigraph import augment_pixels as pixels
from minigraph.augment import Augmentation, Draws, Normalization
from minigraph.base import MXNetError

DRAWN = np.random.RandomState(0).randint(0, 256, (12, 9, 3)).astype(np.uint8)


def draw(seed=0):
    return Draws(seed)(0, 0)


def apply(image, height, width, seed=0, **settings):
    return Augmentation(**settings)(image, height, width, draw(seed))


# -- geometry ------------------------------------------------------------------------------------------------
def test_enlarging_goes_between_the_four_nearest_pixels():
    image = np.array([[0, 100], [200, 40]], np.uint8)[..., None]
    assert pixels.resized(image, 2, 4)[..., 0].tolist() == [[0, 25, 75, 100], [200, 160, 80, 40]]
    assert pixels.resized(image, 4, 2)[:, 0, 0].tolist() == [0, 50, 150, 200]
    assert pixels.resized(image, 4, 4, nearest=True)[::3, ::3, 0].tolist() == [[0, 100], [200, 40]]


def test_enlarging_agrees_with_pillow():
    pil = pytest.importorskip("PIL.Image")
    theirs = np.asarray(pil.fromarray(DRAWN).resize((31, 40), pil.Resampling.BILINEAR))
    assert np.abs(pixels.resized(DRAWN, 40, 31).astype(int) - theirs).max() <= 1


def test_the_shorter_edge_gets_the_length_and_the_longer_one_follows():
    assert pixels.resized_shorter(DRAWN, 18).shape == (24, 18, 3)
    assert pixels.resized_shorter(DRAWN.transpose(1, 0, 2), 18).shape == (18, 24, 3)
    assert apply(DRAWN, 18, 18, resize=18).shape == (18, 18, 3)


def test_warping_by_whole_pixels_and_quarter_turns_is_exact():
    moved = pixels.warped(DRAWN, np.array([[1.0, 0, 2], [0, 1, -1]]), 12, 9, 7)
    assert np.array_equal(moved[:-1, 2:], DRAWN[1:, :-2]) and (moved[-1] == 7).all() and (moved[:, :2] == 7).all()
    square = DRAWN[:9]
    turned = pixels.warped(square, np.array([[0.0, 1, 0], [-1, 0, 8]]), 9, 9, 0)
    assert np.array_equal(turned, np.rot90(square))
    nearest = pixels.warped(square, np.array([[0.0, 1, 0], [-1, 0, 8]]), 9, 9, 0, nearest=True)
    assert np.array_equal(nearest, turned)


def test_the_matrix_keeps_the_centre_and_doubles_by_scale_two():
    matrix = pixels.rotation(30, 0.1, 1.3, 0.8, 20, 30, 26, 39)
    np.testing.assert_allclose(matrix @ [15, 10, 1], [19.5, 13], rtol=1e-12)
    np.testing.assert_allclose(pixels.rotation(0, 0, 2, 1, 4, 6, 8, 12), [[2, 0, 0], [0, 2, 0]], atol=1e-12)


@pytest.mark.parametrize("settings", [
    {"max_rotate_angle": 20}, {"rotate": 90}, {"max_shear_ratio": 0.3}, {"min_random_scale": 0.9},
    {"max_random_scale": 1.5}, {"max_aspect_ratio": 0.25}, {"min_aspect_ratio": 0.75, "max_aspect_ratio": 1.25}])
def test_each_warp_changes_the_image_and_fills_with_the_value_asked_for(settings):
    image = np.full((20, 20, 3), 10, np.uint8)
    image[8:12, 8:12] = 90
    found = [apply(image, 16, 16, seed, pad=4, fill_value=77, **settings) for seed in range(8)]
    plain = apply(image, 16, 16, pad=4, fill_value=77)
    assert all(each.shape == (16, 16, 3) for each in found)
    assert settings == {"rotate": 90} or any((each != plain).any() for each in found)
    assert set(np.unique(np.concatenate(found)).tolist()) <= set(range(10, 91))


def test_sizes_after_scaling_stay_within_their_bounds():
    assert Augmentation(min_img_size=30)(np.zeros((20, 25, 1), np.uint8), 30, 30, draw()).shape == (30, 30, 1)
    with pytest.raises(MXNetError, match="image of 10 x 10 pixels is too small to cut out 11 x 11"):
        apply(np.zeros((20, 25, 1), np.uint8), 11, 11, max_img_size=10)


# -- cropping ------------------------------------------------------------------------------------------------
def test_padding_and_cutting():
    image = np.arange(12, dtype=np.uint8).reshape(3, 4, 1)
    assert np.array_equal(apply(image, 5, 6, pad=1, fill_value=9)[1:-1, 1:-1], image)
    assert (apply(image, 5, 6, pad=1, fill_value=9)[0] == 9).all()
    assert apply(image, 1, 2)[..., 0].tolist() == [[5, 6]]
    found = {tuple(apply(image, 3, 2, seed, rand_crop=True)[0, :, 0].tolist()) for seed in range(40)}
    assert found == {(0, 1), (1, 2), (2, 3)}


def test_squares_of_random_size_are_resized_to_the_data_shape():
    image = np.full((30, 40, 3), 5, np.uint8)
    image[10:20, 15:25] = 200  # the square of ten pixels at the centre
    assert (apply(image, 6, 6, min_crop_size=10, max_crop_size=10) == 200).all()
    shares = {int((apply(image, 60, 60, seed, min_crop_size=10, max_crop_size=30) == 200).sum()) for seed in range(20)}
    assert len(shares) > 5


def test_random_areas_and_ratios_stay_within_their_bounds(monkeypatch):
    seen = []
    monkeypatch.setattr(pixels, "resized", lambda image, height, width, nearest: seen.append(image.shape) or image)
    augment = Augmentation(random_resized_crop=True, min_random_area=0.1, max_random_area=0.5, min_aspect_ratio=0.75,
                           max_aspect_ratio=4 / 3)
    for row in range(200):
        augment(np.zeros((60, 80, 3), np.uint8), 10, 10, Draws(0)(0, row))
    areas = np.array([h * w / 4800 for h, w, _ in seen])
    ratios = np.array([w / h for h, w, _ in seen])
    assert 0.09 < areas.min() < 0.15 and 0.45 < areas.max() < 0.51 and 0.72 < ratios.min() and ratios.max() < 1.38


def test_an_area_that_never_fits_is_cut_at_the_centre():
    wide = np.zeros((10, 100, 3), np.uint8)
    wide[:, 45:55] = 8
    assert (apply(wide, 4, 4, random_resized_crop=True, min_aspect_ratio=0.1, max_aspect_ratio=0.1) == 8).all()


def test_mirroring():
    assert np.array_equal(apply(DRAWN, 12, 9, mirror=True), DRAWN[:, ::-1])
    flipped = [bool((apply(DRAWN, 12, 9, seed, rand_mirror=True) != DRAWN).any()) for seed in range(60)]
    assert 15 < sum(flipped) < 45


# -- colours -------------------------------------------------------------------------------------------------
def test_hue_lightness_and_saturation_are_those_of_the_standard_library():
    hue, light, saturation = pixels.to_hls(DRAWN)
    expected = np.array([[colorsys.rgb_to_hls(*(pixel / 255)) for pixel in row] for row in DRAWN])
    np.testing.assert_allclose(np.stack([hue / 180, light / 255, saturation / 255], -1), expected, atol=1e-5)
    assert np.array_equal(pixels.from_hls(hue, light, saturation), DRAWN)


def test_grey_black_and_white_have_no_saturation_and_survive():
    image = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
    assert (pixels.to_hls(image)[2] == 0).all()
    assert np.array_equal(pixels.shifted_hls(image, 30, 0, 0), image)


def test_a_shift_of_each_is_that_of_the_standard_library_and_stops_at_the_ends():
    shifted = pixels.shifted_hls(DRAWN, 20, -30, 25)
    for pixel, found in zip(DRAWN.reshape(-1, 3), shifted.reshape(-1, 3), strict=True):
        h, light, s = colorsys.rgb_to_hls(*(pixel / 255))
        moved = min(h + 20 / 180, 1), max(light - 30 / 255, 0), min(s + 25 / 255, 1)
        np.testing.assert_allclose(np.array(colorsys.hls_to_rgb(*moved)) * 255, found, atol=0.6)


def test_brightness_contrast_and_saturation():
    np.testing.assert_allclose(pixels.brightened(DRAWN, 0.5), DRAWN / 2, atol=0.51)
    assert (pixels.brightened(DRAWN, 300) == np.where(DRAWN > 0, 255, 0)).all()
    grey = DRAWN @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(pixels.contrasted(DRAWN, 0), np.full(DRAWN.shape, grey.mean()), atol=0.51)
    np.testing.assert_allclose(pixels.saturated(DRAWN, 0), np.repeat(grey[..., None], 3, -1), atol=0.51)
    for name in ("brightness", "contrast", "saturation", "random_h", "random_l", "random_s", "pca_noise"):
        most = 40 if name.startswith("random") else 0.4
        assert (apply(DRAWN, 12, 9, 1, **{name: most}) != DRAWN).any(), name
        assert np.array_equal(apply(DRAWN[..., :1], 12, 9, **{name: most}), DRAWN[..., :1]), "grey stays"


def test_tinting_adds_multiples_of_the_principal_colours():
    grey = np.full((1, 1, 3), 100, np.uint8)
    np.testing.assert_allclose(pixels.tinted(grey, np.array([0.5, 0, 0]))[0, 0],
                               100 - 0.5 * 55.46 * np.array([0.5675, 0.5808, 0.5836]), atol=0.51)


# -- the whole -----------------------------------------------------------------------------------------------
EVERYTHING = dict(resize=20, rand_crop=True, max_rotate_angle=10, max_aspect_ratio=0.2, max_shear_ratio=0.1,
                  min_random_scale=0.9, max_random_scale=1.1, pad=6, fill_value=127, random_h=36, random_s=50,
                  random_l=50, brightness=0.2, contrast=0.2, saturation=0.2, pca_noise=0.1, rand_mirror=True)


def test_the_same_numbers_give_the_same_image_and_others_another():
    images = [Augmentation(**EVERYTHING)(DRAWN, 16, 16, Draws(seed)(epoch, row))
              for seed, epoch, row in ((1, 2, 3), (1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4))]
    assert np.array_equal(images[0], images[1])
    assert all((images[0] != each).any() for each in images[2:])


@pytest.mark.parametrize("settings,said", [
    ({"pad": -1}, "pad must not be negative"), ({"min_random_scale": 2.0}, "min_random_scale=2.0 is above"),
    ({"inter_method": 3}, "inter_method=3"), ({"random_resized_crop": True, "rand_crop": True}, "excludes rand_crop"),
    ({"max_aspect_ratio": 1.5}, "ratios of width to height"), ({"max_crop_size": 5}, "min_crop_size of 1 or more"),
    ({"min_aspect_ratio": 1.5, "max_aspect_ratio": 1.2}, "ratios of width to height")])
def test_settings_that_contradict_each_other_are_named(settings, said):
    with pytest.raises(MXNetError, match=said):
        Augmentation(**settings)


def test_normalisation_subtracts_scales_and_divides_by_channel():
    out = np.empty((3, 12, 9), np.float32)
    Normalization(mean_r=1, mean_g=2, mean_b=3, std_r=2, std_g=4, std_b=5, scale=0.5)(DRAWN, out, draw())
    expected = (DRAWN.transpose(2, 0, 1) - np.array([1, 2, 3])[:, None, None]) * 0.5
    np.testing.assert_allclose(out, expected / np.array([2, 4, 5])[:, None, None], rtol=1e-6)
    with pytest.raises(MXNetError, match="std_g must be positive"):
        Normalization(std_g=0)


def test_light_is_scaled_as_pixels_are():
    outs = np.empty((2, 1, 2, 2), np.float32)
    for scale, out in zip((1, 0.25), outs, strict=True):
        Normalization(max_random_illumination=3, scale=scale)(np.full((2, 2, 1), 10, np.uint8), out, draw())
    np.testing.assert_allclose(outs[1], outs[0] / 4, rtol=1e-6)
    assert (outs[0] != 10).all()


def test_contrast_and_light_differ_between_images():
    outs = np.empty((2, 1, 2, 2), np.float32)
    image = np.full((2, 2, 1), 10, np.uint8)
    for row, out in enumerate(outs):
        Normalization(max_random_contrast=0.5, max_random_illumination=3)(image, out, Draws(0)(0, row))
    assert (outs[0] == outs[0][0, 0, 0]).all() and (outs[0] != outs[1]).all() and (np.abs(outs - 10) < 8).all()
