"""Finding the driver, what is said where something is missing, threads and forks."""
from __future__ import annotations

import ctypes
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.device.cuda import driver as drivers
from minigraph.device.cuda.driver import CudaUnavailableError, Settings, get_driver

from .processes import run, software_driver, spawn


def double(context, values=(1, 2)):
    """2 x on a device."""
    exe = (mx.sym.Variable("x") * 2).simple_bind(context, x=np.shape(values))
    return exe.forward(x=np.array(values))[0].asnumpy().tolist()


def failure(context):
    """The text of the error that binding raises."""
    with pytest.raises(MXNetError) as caught:
        double(context)
    return str(caught.value)


# -- settings ------------------------------------------------------------------------------------------------------

def test_settings_have_their_documented_defaults():
    settings = Settings.read({})
    assert (settings.driver, settings.pooled) == ("real", True)
    assert (settings.capacity_bytes, settings.detects_races) == (None, False)
    assert settings.build_cache == Path.home() / ".cache" / "minigraph"


def test_settings_are_read_from_the_environment():
    settings = Settings.read({"MINIGRAPH_CUDA_DRIVER": "software", "MINIGRAPH_CUDA_POOL": "off",
                              "MINIGRAPH_CUDA_MEMORY": "1.5GiB", "SOFTCUDA_RACE": "1", "MINIGRAPH_BUILD_CACHE": "/c"})
    assert settings == Settings("software", False, 3 << 29, True, Path("/c"))


@pytest.mark.parametrize("name, word", [("MINIGRAPH_CUDA_POOL", "no"), ("MINIGRAPH_CUDA_MEMORY", "much")])
def test_a_setting_that_means_nothing_is_refused_by_name(name, word):
    with pytest.raises(MXNetError, match=f"{name}.*{word}"):
        Settings.read({name: word})


# -- what is missing -----------------------------------------------------------------------------------------------

def without_pycuda():
    sys.modules["pycuda"] = None  # type: ignore[assignment]
    return double(mx.cpu()), mx.num_gpus(), failure(mx.gpu(0))


def test_without_pycuda_the_cpu_works_and_the_gpu_says_what_to_install():
    result, gpus, text = run(without_pycuda)
    assert (result, gpus) == ([2, 4], 0)
    assert text.startswith("PyCUDA is not installed") and "pip install" in text


def on_cpu():
    import minigraph.device.cuda
    minigraph.device.cuda.import_families()
    return double(mx.cpu()), "pycuda" in sys.modules, "_driver" in vars(drivers) and drivers._driver is not None


def test_the_cpu_asks_for_neither_pycuda_nor_a_driver():
    assert run(on_cpu, MINIGRAPH_CUDA_DRIVER="/nowhere") == [[2, 4], False, False]


def without_library():
    return mx.num_gpus(), failure(mx.gpu(0))


def test_a_driver_path_that_is_no_file_is_named():
    gpus, text = run(without_library, MINIGRAPH_CUDA_DRIVER="/nowhere/libcuda.so.1")
    assert gpus == 0 and "/nowhere/libcuda.so.1, which is no file" in text


def test_a_file_that_is_no_library_is_named(tmp_path):
    path = tmp_path / "libcuda.so.1"
    path.write_text("nothing")
    assert f"{path} cannot be loaded as a CUDA driver" in run(without_library, MINIGRAPH_CUDA_DRIVER=path)[1]


def has_nvidia_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def test_without_a_driver_library_one_sentence_says_so(monkeypatch):
    if has_nvidia_driver():
        pytest.skip("there is a libcuda.so.1 here")
    with pytest.raises(CudaUnavailableError, match=r"no NVIDIA driver.*mx\.cpu\(\)"):
        drivers.load_library(Settings())


class CudaError(Exception):
    """Stands for pycuda.driver.Error."""


def fake_pycuda(count=1, version=(13, 0, 0), error=None):
    def init():
        if error:
            raise CudaError(error)
    return SimpleNamespace(init=init, Error=CudaError, Device=SimpleNamespace(count=lambda: count),
                           get_version=lambda: version)


def test_a_driver_older_than_pycudas_cuda_is_refused_with_both_versions(monkeypatch):
    monkeypatch.setattr(drivers.importlib, "import_module", lambda name: fake_pycuda())
    with pytest.raises(CudaUnavailableError, match=r"too old.*CUDA 12\.4.*CUDA 13\.0.*update the driver"):
        drivers.import_pycuda(12040)


def test_a_driver_that_lacks_a_function_is_refused_with_its_name(monkeypatch):
    def fail(name):
        raise ImportError("undefined symbol: cuCtxCreate_v4")
    monkeypatch.setattr(drivers.importlib, "import_module", fail)
    with pytest.raises(CudaUnavailableError, match=r"CUDA 12\.4 .*cuCtxCreate_v4.*update the driver"):
        drivers.import_pycuda(12040)


@pytest.mark.parametrize("pycuda", [fake_pycuda(count=0), fake_pycuda(error="no CUDA-capable device is detected")])
def test_a_driver_without_a_device_says_so(pycuda):
    with pytest.raises(CudaUnavailableError, match=r"no GPU.*nvidia-smi"):
        drivers.initialise(pycuda)


def too_many():
    return mx.num_gpus(), failure(mx.gpu(3))


def test_a_gpu_number_that_is_not_there_is_refused_with_the_count():
    gpus, text = run(too_many)
    assert gpus == 1 and "there is no gpu(3): this machine has 1" in text


def another_library(other):
    ctypes.CDLL(other, ctypes.RTLD_GLOBAL)
    return failure(mx.gpu(0))


def test_a_second_libcuda_in_the_process_is_refused(tmp_path):
    copy = tmp_path / "libcuda.so.1"
    copy.write_bytes(software_driver().read_bytes())
    assert "another libcuda.so.1 was loaded" in run(another_library, str(copy))


def test_the_software_driver_is_found_by_its_word():
    assert run(double_on_gpu, MINIGRAPH_CUDA_DRIVER="software") == [2, 4]


# -- kernels -------------------------------------------------------------------------------------------------------

def with_fatbins(folder, architectures):
    from minigraph.device.cuda.context import PrimaryContext
    from minigraph.device.cuda.modules import FatbinImages, Kernels
    loaded = get_driver()
    context = PrimaryContext(loaded, 0)
    info = SimpleNamespace(CUDA_ARCHITECTURES=tuple(architectures), NO_KERNELS_BECAUSE="nvcc was not found")
    text = ""
    with context:
        try:
            Kernels(loaded, FatbinImages(loaded, context, [Path(folder)], info)).function("axpy")
        except MXNetError as error:
            text = str(error)
    context.detach()
    return text


def test_an_installation_without_kernels_says_why_and_what_to_do(tmp_path):
    text = run(with_fatbins, str(tmp_path), [80, 90])
    assert "has no CUDA kernels (nvcc was not found)" in text and "put nvcc of CUDA 13 on PATH" in text


@pytest.mark.parametrize("capability", [70, 90])
def test_kernels_for_other_architectures_name_card_architecture_what_was_built_and_remedy(tmp_path, capability):
    (tmp_path / "elemwise.fatbin").write_bytes(b"\x50\xed\x55\xba" + bytes(64))
    text = run(with_refused_image, str(tmp_path), SOFTCUDA_CC=capability)
    assert text.startswith(f"softcuda (CPU) (sm_{capability}) cannot run the kernels of elemwise.fatbin, which nvcc "
                           "built for sm_80, sm_90")
    assert f"-C cmake.define.MINIGRAPH_CUDA_ARCHITECTURES={capability}" in text


def loads_of_shared_files(folder):
    from minigraph.device.cuda.modules import FatbinImages
    for name in ("products", "conv"):
        (Path(folder) / f"{name}.fatbin").write_bytes(b"")
    read, context = [], SimpleNamespace(compute_capability=(9, 0), device_name="a card")
    cuda = SimpleNamespace(module_from_buffer=lambda content: read.append(content) or object())
    info = SimpleNamespace(CUDA_ARCHITECTURES=(80,), KERNELS={"dense": "products", "matmul": "products"})
    images = FatbinImages(SimpleNamespace(cuda=cuda), context, [Path(folder)], info)
    same = images.load("dense") is images.load("matmul") is not images.load("conv")
    return sorted(images.stems()), same, len(read)


def test_families_of_one_file_share_a_module_that_is_loaded_once(tmp_path):
    assert loads_of_shared_files(tmp_path) == (["conv", "dense", "matmul"], True, 2)


def with_refused_image(folder):
    """The software driver says on stderr what it refuses; here that is expected."""
    saved, quiet = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)
    try:
        return with_fatbins(folder, [80, 90])
    finally:
        os.dup2(saved, 2)


def unknown_kernel():
    from minigraph.device.cuda import cuda_device
    device = cuda_device(0)
    with device.context:
        device.kernels.function("no_such_kernel", "elemwise")


def test_a_kernel_that_no_family_has_is_named():
    error = spawn(unknown_kernel).error
    assert error is not None and "there is no CUDA kernel no_such_kernel in the families activation, " in error[1]


# -- threads -------------------------------------------------------------------------------------------------------

def double_on_gpu():
    return double(mx.gpu(0))


def bound_here_run_there():
    exe = (mx.sym.Variable("x") * 2).simple_bind(mx.gpu(0), x=(2,))
    results = []

    def work():
        results.append(exe.forward(x=np.array([1, 2]))[0].asnumpy().tolist())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return results, exe.outputs[0].asnumpy().tolist()


def test_an_executor_bound_on_one_thread_runs_on_another():
    assert run(bound_here_run_there, SOFTCUDA_RACE=1) == [[[2, 4]], [2, 4]]


def two_at_once():
    x = mx.sym.Variable("x")
    results: dict[int, bool] = {}

    def work(number):
        exe = mx.sym.FullyConnected(x, num_hidden=8, no_bias=True, name="fc").simple_bind(mx.gpu(0), x=(4, 16))
        exe.arg_dict["fc_weight"][:] = number
        ok = True
        for k in range(20):
            out = exe.forward(x=np.full((4, 16), k))[0]
            ok = ok and bool((out.asnumpy() == 16 * k * number).all())
        results[number] = ok

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(results.items())


@pytest.mark.parametrize("schedule", ["threads", "lazy"])
def test_two_threads_use_the_gpu_at_once(schedule):
    assert run(two_at_once, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1) == [[1, True], [2, True]]


# -- forks ---------------------------------------------------------------------------------------------------------

def in_child(work):
    """What a forked child says, and its exit status; the child ends as a whole interpreter does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        print(work(), flush=True)
        sys.exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    return text.strip(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def forked(touches_gpu):
    exe = (mx.sym.Variable("x") * 2).simple_bind(mx.gpu(0), x=(2,))
    exe.forward(x=np.ones(2))
    before = exe.outputs[0].asnumpy().tolist()

    def work():
        if not touches_gpu:
            return np.arange(4).sum()
        texts = []
        for use in (lambda: exe.forward(x=np.ones(2)), lambda: exe.outputs[0].asnumpy(), lambda: double(mx.gpu(0))):
            try:
                use()
            except MXNetError as error:
                texts.append(str(error))
        return len(texts), texts[0] if len(set(texts)) == 1 else texts

    said = in_child(work)
    exe.forward(x=np.full(2, 3))
    return before, said, exe.outputs[0].asnumpy().tolist()


@pytest.mark.parametrize("schedule", ["threads", "lazy"])
def test_a_forked_child_that_leaves_the_gpu_alone_is_fine(schedule):
    assert run(forked, False, SOFTCUDA_SCHED=schedule) == [[2, 2], ["6", 0], [6, 6]]


def test_a_forked_child_that_touches_the_gpu_gets_one_clear_error():
    before, (text, status), after = run(forked, True)
    assert (before, status, after) == ([2, 2], 0, [6, 6])
    assert text.startswith("(3, ") and drivers.FORKED[:60] in text


def forked_first():
    said = in_child(lambda: double(mx.gpu(0)))
    return said, double(mx.gpu(0))


def test_a_child_forked_before_the_gpu_was_used_may_use_it():
    assert run(forked_first) == [["[2.0, 4.0]", 0], [2, 4]]
