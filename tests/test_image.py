"""mx.image: sizes and values of MXNet's, augmenters by what they do to chosen images, and ImageIter from all."""
from __future__ import annotations

import io
import json

import numpy as np
import pytest

import minigraph as mx
from minigraph import recordio
from minigraph.base import MXNetError

DRAWN = np.random.RandomState(0).randint(0, 256, (5, 7, 3)).astype(np.uint8)


def image(values=DRAWN, dtype=np.uint8):
    return mx.nd.array(values, dtype=dtype)


# -- sizes -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("interp, expected", [
    (0, [[172, 192, 211, 216], [39, 88, 9, 254], [114, 34, 38, 105]]),
    (1, [[139, 139, 100, 150], [146, 148, 135, 178], [69, 125, 96, 89]]),
    (2, [[137, 134, 89, 157], [141, 156, 129, 182], [60, 132, 90, 85]]),
    (3, [[132, 131, 130, 163], [109, 112, 133, 164], [69, 104, 89, 90]]),
    (4, [[134, 133, 82, 158], [141, 163, 127, 187], [49, 126, 86, 81]])])
def test_methods_of_interpolation_are_those_of_opencv(interp, expected):
    """The red channel, 7 x 5 to 4 x 3, as MXNet has it but for rounding."""
    found = mx.image.imresize(image(), 4, 3, interp)
    assert found.shape == (3, 4, 3) and found.dtype == np.uint8
    assert np.abs(found.asnumpy()[..., 0].astype(int) - expected).max() <= 1


@pytest.mark.parametrize("interp", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("size", [(4, 3), (14, 10), (4, 10), (7, 5), (1, 1)])
def test_an_even_image_stays_even_in_every_size(interp, size):
    found = mx.image.imresize(image(np.full((5, 7, 3), 77)), *size, interp).asnumpy()
    assert found.shape == (size[1], size[0], 3) and (found == 77).all()


def test_images_of_floats_are_not_rounded():
    found = mx.image.imresize(image(dtype=np.float32), 4, 3, 1).asnumpy()
    np.testing.assert_allclose(found[0, :2], [[138.79166, 64.58333, 168.375], [139.0, 90.45833, 51.208336]], rtol=1e-5)


def test_the_method_that_fits_and_any_method():
    def same(interp, other, *size):
        return (mx.image.imresize(image(), *size, interp).asnumpy()
                == mx.image.imresize(image(), *size, other).asnumpy()).all()

    assert same(9, 2, 14, 10) and same(9, 3, 4, 3) and same(9, 1, 4, 10)
    mx.random.seed(0)
    known = [mx.image.imresize(image(), 4, 3, k).asnumpy().tobytes() for k in range(5)]
    drawn = {known.index(mx.image.imresize(image(), 4, 3, 10).asnumpy().tobytes()) for _ in range(60)}
    assert drawn == {0, 1, 2, 3, 4}
    with pytest.raises(MXNetError, match="interp=7"):
        mx.image.imresize(image(), 4, 3, 7)
    with pytest.raises(MXNetError, match="0 x 4"):
        mx.image.imresize(image(), 4, 0)


def test_sizes_follow_the_shorter_edge_and_what_there_is():
    assert mx.image.resize_short(image(), 10).shape == (10, 14, 3)
    assert mx.image.resize_short(image(DRAWN.transpose(1, 0, 2)), 10).shape == (14, 10, 3)
    assert mx.image.scale_down((640, 480), (720, 120)) == (640, 106)
    assert mx.image.scale_down((360, 1000), (480, 500)) == (360, 375)


# -- parts -------------------------------------------------------------------------------------------------------
def test_crops_are_where_they_say():
    np.testing.assert_array_equal(mx.image.fixed_crop(image(), 1, 2, 4, 3).asnumpy(), DRAWN[2:5, 1:5])
    assert mx.image.fixed_crop(image(), 1, 2, 4, 3, (8, 6)).shape == (6, 8, 3)
    found, place = mx.image.center_crop(image(), (3, 3))
    assert place == (2, 1, 3, 3)
    np.testing.assert_array_equal(found.asnumpy(), DRAWN[1:4, 2:5])
    larger, place = mx.image.center_crop(image(), (20, 10))
    assert larger.shape == (10, 20, 3) and place == (0, 1, 7, 3)
    places = set()
    for _ in range(50):
        found, (x, y, w, h) = mx.image.random_crop(image(), (6, 3))
        np.testing.assert_array_equal(found.asnumpy(), DRAWN[y:y + h, x:x + w])
        places.add((x, y))
    assert places == {(x, y) for x in range(2) for y in range(3)}
    with pytest.raises(MXNetError, match=r"7 x 5 pixels has no part of 4 x 3 at \(4, 2\)"):
        mx.image.fixed_crop(image(), 4, 2, 4, 3)


def test_parts_of_random_size_keep_their_area_and_ratio():
    large = image(np.zeros((100, 200, 3)))
    for _ in range(30):
        found, (_, _, w, h) = mx.image.random_size_crop(large, (8, 6), (0.1, 0.3), (0.5, 2.0))
        assert found.shape == (6, 8, 3)
        assert 0.095 < w * h / 20_000 < 0.305 and 0.48 < w / h < 2.05
    _, (_, _, w, h) = mx.image.random_size_crop(large, (8, 6), 0.9, (5.0, 5.0))     # none fits
    assert (w, h) == (8, 6)


def test_borders_and_normal_colours():
    found = mx.image.copyMakeBorder(image(), 1, 2, 3, 4, values=[1, 2, 3]).asnumpy()
    assert found.shape == (8, 14, 3) and found[0, 0].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(found[1:6, 3:10], DRAWN)
    np.testing.assert_array_equal(mx.image.copyMakeBorder(image(), 1, 0, 0, 0, type=1).asnumpy()[0], DRAWN[0])
    normal = mx.image.color_normalize(image(), mx.nd.array([1, 2, 3]), np.array([2, 4, 8])).asnumpy()
    np.testing.assert_allclose(normal, (DRAWN - np.array([1.0, 2, 3])) / [2, 4, 8], rtol=1e-6)


def test_images_are_turned_as_in_mxnet():
    planes = image(np.arange(60).reshape(4, 5, 3).transpose(2, 0, 1), np.float32)
    np.testing.assert_allclose(mx.image.imrotate(planes, 30.0).asnumpy()[0], [
        [0.61370754, 3.9617834, 11.264429, 21.362505, 15.545947],
        [2.5586567, 12.656733, 22.754808, 32.852886, 42.950962],
        [14.049038, 24.147114, 34.24519, 44.34327, 54.441345],
        [13.977152, 35.637493, 45.735573, 35.993053, 10.84113]], rtol=1e-4)
    np.testing.assert_allclose(mx.image.imrotate(planes, 30.0, zoom_in=True).asnumpy()[0, 0],
                               [3.8553977, 10.167886, 16.940456, 23.71303, 30.485601], rtol=1e-4)
    np.testing.assert_allclose(mx.image.imrotate(planes, 30.0, zoom_out=True).asnumpy()[0, 0],
                               [0, 0, 5.267703, 9.818959, 0], rtol=1e-4)
    both = mx.nd.array(np.stack([planes.asnumpy()] * 2))
    turned = mx.image.imrotate(both, mx.nd.array([0, 30])).asnumpy()
    np.testing.assert_allclose(turned[0], planes.asnumpy(), atol=1e-4)
    assert mx.image.random_rotate(both, (-10, 10)).shape == both.shape
    for wrong, message in ((image(), "float32"), (both[0][0], "3D and 4D")):
        with pytest.raises((TypeError, ValueError), match=message):
            mx.image.imrotate(wrong, 30.0)


# -- files -------------------------------------------------------------------------------------------------------
def encoded(values):
    """The bytes of a .npy file of an image."""
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def test_images_are_read_from_bytes_and_files(tmp_path):
    data = encoded(DRAWN)
    np.testing.assert_array_equal(mx.image.imdecode(data).asnumpy(), DRAWN)
    np.testing.assert_array_equal(mx.image.imdecode(np.frombuffer(data, np.uint8), to_rgb=False).asnumpy(),
                                  DRAWN[..., ::-1])
    grey = mx.image.imdecode(mx.nd.array(np.frombuffer(data, np.uint8), dtype=np.uint8), flag=0)
    assert grey.shape == (5, 7, 1)
    assert np.abs(grey.asnumpy()[..., 0] - DRAWN @ np.array([0.299, 0.587, 0.114])).max() <= 1
    (tmp_path / "a.npy").write_bytes(data)
    np.testing.assert_array_equal(mx.image.imread(tmp_path / "a.npy").asnumpy(), DRAWN)
    (tmp_path / "b.npy").write_bytes(b"nothing")
    with pytest.raises(MXNetError, match="b.npy: .*no sound image"):
        mx.image.imread(tmp_path / "b.npy")
    with pytest.raises(ValueError, match="convert to bytes"):
        mx.image.imdecode("text")


def test_files_of_pillow_are_read(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pillow.fromarray(DRAWN).save(tmp_path / "a.png")
    np.testing.assert_array_equal(mx.image.imread(str(tmp_path / "a.png")).asnumpy(), DRAWN)


# -- augmenters --------------------------------------------------------------------------------------------------
def test_the_augmenters_of_all_settings_tell_what_mxnets_do():
    made = mx.image.CreateAugmenter((3, 4, 4), resize=5, rand_crop=True, rand_resize=True, rand_mirror=True, mean=True,
                                    std=np.array([1, 2, 3.0]), brightness=0.1, contrast=0.1, saturation=0.1, hue=0.1,
                                    pca_noise=0.1, rand_gray=0.3)
    told = [json.loads(each) if isinstance(each, str) else each for each in (aug.dumps() for aug in made)]
    assert told[:4] == [["resizeaug", {"size": 5, "interp": 2}],
                        ["randomsizedcropaug", {"size": [4, 4], "area": 0.08, "ratio": [0.75, 4 / 3], "interp": 2}],
                        ["horizontalflipaug", {"p": 0.5}], ["castaug", {"type": "float32"}]]
    assert told[4] == ["colorjitteraug", ['["brightnessjitteraug", {"brightness": 0.1}]',
                                          '["contrastjitteraug", {"contrast": 0.1}]',
                                          '["saturationjitteraug", {"saturation": 0.1}]']]
    assert [each[0] for each in told[5:]] == ["huejitteraug", "lightingaug", "randomgrayaug", "colornormalizeaug"]
    assert told[8][1]["std"] == [1, 2, 3] and told[8][1]["mean"] == pytest.approx([123.68, 116.28, 103.53])
    out = mx.image.SequentialAug(made)(image(np.tile(DRAWN, (3, 3, 1))))
    assert out.shape == (4, 4, 3) and out.dtype == np.float32


def test_colours_change_as_they_should():
    floats = image(dtype=np.float32)
    values = DRAWN.astype(np.float64)
    lightness = values @ [0.299, 0.587, 0.114]

    def factor_of(augmenter, change):
        mx.random.seed(6)
        drawn = mx.random.generator().uniform(-0.5, 0.5)
        mx.random.seed(6)
        np.testing.assert_allclose(augmenter(floats).asnumpy(), change(drawn), rtol=1e-4, atol=2e-3)

    factor_of(mx.image.BrightnessJitterAug(0.5), lambda d: values * (1 + d))
    factor_of(mx.image.ContrastJitterAug(0.5), lambda d: values * (1 + d) - d * lightness.mean())
    factor_of(mx.image.SaturationJitterAug(0.5), lambda d: values * (1 + d) - d * lightness[..., None])


def test_hue_is_turned_as_in_mxnet(monkeypatch):
    class Fixed:
        def uniform(self, low, high):
            return -0.3656357558875988

    monkeypatch.setattr("minigraph.random.generator", Fixed)
    ramp = image(np.arange(60).reshape(4, 5, 3), np.float32)
    found = mx.image.HueJitterAug(0.5)(ramp).asnumpy()
    np.testing.assert_allclose(found[0, 0], [1.0866628, 0.32563844, 2.624307], rtol=1e-4)
    np.testing.assert_allclose(found[3, 4], [58.01248, 57.38218, 59.527542], rtol=1e-4)


def test_lighting_grey_and_mirror():
    floats = image(dtype=np.float32)
    mx.random.seed(1)
    amounts = mx.random.generator().normal(0, 0.5, 3)
    mx.random.seed(1)
    found = mx.image.LightingAug(0.5, np.array([1.0, 2, 3]), np.arange(9).reshape(3, 3))(floats).asnumpy()
    np.testing.assert_allclose(found - DRAWN, np.broadcast_to(np.arange(9).reshape(3, 3) @ (amounts * [1, 2, 3]),
                                                              (5, 7, 3)), atol=1e-3)
    grey = mx.image.RandomGrayAug(1.0)(floats).asnumpy()
    np.testing.assert_allclose(grey, np.repeat((DRAWN @ np.array([0.21, 0.72, 0.07]))[..., None], 3, 2), rtol=1e-5)
    np.testing.assert_array_equal(mx.image.HorizontalFlipAug(1.0)(image()).asnumpy(), DRAWN[:, ::-1])
    assert mx.image.HorizontalFlipAug(0.0)(floats) is floats and mx.image.RandomGrayAug(0.0)(floats) is floats
    assert mx.image.ColorJitterAug(0.1, 0, 0.1).dumps()[1] == [
        '["brightnessjitteraug", {"brightness": 0.1}]', '["saturationjitteraug", {"saturation": 0.1}]']


def test_steps_in_random_order_come_in_all_orders():
    class Tell(mx.image.Augmenter):
        def __init__(self, letter):
            super().__init__()
            self.letter = letter

        def __call__(self, src):
            return src + self.letter

    steps = mx.image.RandomOrderAug([Tell("a"), Tell("b"), Tell("c")])
    assert {steps("") for _ in range(100)} == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_what_create_augmenter_refuses():
    with pytest.raises(MXNetError, match="rand_crop=True as well"):
        mx.image.CreateAugmenter((3, 4, 4), rand_resize=True)
    with pytest.raises(MXNetError, match=r"mean has shape \(2,\)"):
        mx.image.CreateAugmenter((3, 4, 4), mean=np.zeros(2))


# -- ImageIter ---------------------------------------------------------------------------------------------------
@pytest.fixture
def files(tmp_path):
    """Seven images whose pixels are their numbers, as files, lists of them, and records."""
    writer = recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "w")
    lines = []
    for k in range(7):
        pixels = np.full((6, 8, 3), k, np.uint8)
        packed = recordio.pack_img(recordio.IRHeader(0, k * 10, k, 0), pixels, img_fmt=".npy")
        writer.write_idx(k, packed)
        (tmp_path / f"{k}.npy").write_bytes(packed[24:])
        lines.append(f"{k}\t{k * 10}\t{k}.npy\n")
    writer.close()
    (tmp_path / "a.lst").write_text("".join(lines))
    return tmp_path


def sources(files):
    return {"rec": {"path_imgrec": str(files / "a.rec")},
            "indexed rec": {"path_imgrec": str(files / "a.rec"), "path_imgidx": str(files / "a.idx")},
            "list file": {"path_imglist": str(files / "a.lst"), "path_root": str(files)},
            "list": {"imglist": [[k * 10, f"{k}.npy"] for k in range(7)], "path_root": str(files)},
            "rec and list": {"path_imgrec": str(files / "a.rec"), "path_imglist": str(files / "a.lst")}}


def epoch(data):
    batches = []
    for batch in data:
        numbers = batch.data[0].asnumpy()
        assert numbers.shape == (3, 3, 4, 5) and (numbers == numbers[:, :1, :1, :1]).all()
        assert (batch.label[0].asnumpy() == 10 * numbers[:, 0, 0, 0]).all()
        batches.append((numbers[:, 0, 0, 0].astype(int).tolist(), batch.pad))
    data.reset()
    return batches


@pytest.mark.parametrize("source", ["rec", "indexed rec", "list file", "list", "rec and list"])
def test_batches_come_in_order_with_their_labels(files, source):
    data = mx.image.ImageIter(3, (3, 4, 5), **sources(files)[source])
    assert data.provide_data[0].shape == (3, 3, 4, 5) and data.provide_label[0].shape == (3,)
    for _ in range(2):
        assert epoch(data) == [([0, 1, 2], 0), ([3, 4, 5], 0), ([6, 0, 1], 2)]


def test_the_last_images_are_left_out_or_roll_over(files):
    data = mx.image.ImageIter(3, (3, 4, 5), last_batch_handle="discard", **sources(files)["rec"])
    assert epoch(data) == epoch(data) == [([0, 1, 2], 0), ([3, 4, 5], 0)]
    data = mx.image.ImageIter(3, (3, 4, 5), last_batch_handle="roll_over", **sources(files)["list"])
    assert epoch(data) == [([0, 1, 2], 0), ([3, 4, 5], 0)]
    assert epoch(data) == [([6, 0, 1], 0), ([2, 3, 4], 0)]
    data.hard_reset()
    assert epoch(data)[0] == ([0, 1, 2], 0)


def test_images_are_shuffled_and_parted(files):
    mx.random.seed(2)
    data = mx.image.ImageIter(3, (3, 4, 5), shuffle=True, **sources(files)["rec"])
    orders = [[k for numbers, pad in epoch(data) for k in numbers[:3 - pad]] for _ in range(3)]
    assert all(sorted(order) == list(range(7)) for order in orders) and orders[0] != orders[1] != orders[2]
    for source in ("rec", "list"):
        seen = [k for part in range(2) for numbers, pad in
                epoch(mx.image.ImageIter(3, (3, 4, 5), num_parts=2, part_index=part, **sources(files)[source]))
                for k in numbers[:3 - pad]]
        assert sorted(seen) == list(range(7))


def test_several_labels_and_augmenters_of_ones_own(files):
    class Plus(mx.image.Augmenter):
        def __call__(self, src):
            return src + 100

    data = mx.image.ImageIter(2, (3, 6, 8), label_width=2, dtype="int32", aug_list=[mx.image.CastAug(), Plus()],
                              imglist=[[[k, -k], f"{k}.npy"] for k in range(2)], path_root=str(files))
    batch = data.next()
    assert batch.label[0].asnumpy().tolist() == [[0, 0], [1, -1]] and batch.label[0].dtype == np.int32
    assert batch.data[0].asnumpy()[:, 0, 0, 0].tolist() == [100, 101]


def test_a_subclass_may_leave_images_out(files):
    class Odd(mx.image.ImageIter):
        def check_valid_image(self, data):
            if data[0].asnumpy()[0, 0, 0] % 2 == 0:
                raise RuntimeError("even")

    assert epoch(Odd(3, (3, 4, 5), **sources(files)["list"])) == [([1, 3, 5], 0)]


def test_a_module_trains_from_it(files):
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=80), name="softmax")
    module = mx.mod.Module(net)
    data = mx.image.ImageIter(3, (3, 4, 5), rand_mirror=True, brightness=0.2, **sources(files)["rec"])
    module.fit(data, num_epoch=1, initializer=mx.init.Zero())
    assert module.predict(data).shape == (7, 80)


def test_errors_name_the_image(files):
    (files / "3.npy").write_bytes(b"broken")
    data = mx.image.ImageIter(7, (3, 4, 5), **sources(files)["list"])
    with pytest.raises(MXNetError, match=r"3\.npy: .*no sound image"):
        data.next()
    data = mx.image.ImageIter(1, (3, 4, 5), aug_list=[], **sources(files)["rec"])
    with pytest.raises(MXNetError, match=r"image 0: .*\(3, 6, 8\).*data_shape is \(3, 4, 5\)"):
        data.next()
    for wrong, message in (({}, "give one of them"), ({"imglist": [[1, 2, "a"]]}, r"imglist: entry 1"),
                           ({"imglist": [[1, "a"]], "num_parts": 2, "part_index": 2}, "part_index"),
                           ({"imglist": [[1, "a"]], "last_batch_handle": "keep"}, "'keep'"),
                           ({"path_imgrec": str(files / "a.rec"), "label_width": 2}, None)):
        with pytest.raises(MXNetError, match=message):
            mx.image.ImageIter(1, (3, 4, 5), **wrong).next()
    with pytest.raises(TypeError, match="resize would make augmenters"):
        mx.image.ImageIter(1, (3, 4, 5), aug_list=[], resize=3, **sources(files)["rec"])
    with pytest.raises(ValueError, match="3 channels"):
        mx.image.ImageIter(1, (1, 4, 5), **sources(files)["rec"])
