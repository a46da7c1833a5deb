"""build.py and build_pycuda.py: what they build, what they reuse, what they say when something is missing."""
from __future__ import annotations

import ctypes
import subprocess
import sys
import zipfile

import pytest

from . import build, build_pycuda
from .conftest import HERE, KERNEL_FILES, KERNEL_FLAGS, run_child

KERNEL = 'extern "C" __global__ void {name}(float *y) {{ y[threadIdx.x] = {value}; }}\n'


def test_driver_exports_every_function_that_cuda_h_declares(driver):
    header = (build.find_cuda_include() / "cuda.h").read_text(errors="replace")
    library = ctypes.CDLL(str(driver))
    declared = {line.split("CUDAAPI ")[1].split("(")[0] for line in header.splitlines()
                if line.startswith("CUresult CUDAAPI cu")}
    assert len(declared) > 300
    assert [name for name in sorted(declared) if not hasattr(library, name)] == []


def test_kernels_of_all_files_are_found_and_templates_are_not(kernels, tmp_path):
    names = build.build_module(KERNEL_FILES, kernels, flags=KERNEL_FLAGS)
    assert {"axpy", "matmul_8", "matmul_16", "deadlock", "mma_tf32"} <= set(names)
    assert "matmul" not in names and "sum_columns" not in names


def test_unchanged_module_is_not_built_again_and_a_changed_header_is_seen(host_tools, tmp_path):
    header, source, module = tmp_path / "value.h", tmp_path / "k.cu", tmp_path / "k.so"
    header.write_text("#define VALUE 1.f\n")
    source.write_text('#include "value.h"\n' + KERNEL.format(name="fill", value="VALUE"))
    built = []
    for value in ("1.f", "1.f", "2.f"):
        header.write_text(f"#define VALUE {value}\n")
        assert build.build_module([source], module) == ["fill"]
        built.append(module.stat().st_mtime_ns)
    assert built[0] == built[1] < built[2]


def test_launch_bounds_shared_arrays_and_attributes_are_rewritten(host_tools, tmp_path):
    source = tmp_path / "k.cu"
    source.write_text(
        "#define THREADS(n) ((n) * (2))\n"
        'extern "C" __global__ void __launch_bounds__(THREADS((4)), 2) one(float *y) {\n'
        "  __shared__ alignas(16) float a[4];\n  __shared__ __align__(16) float b[4];\n"
        "  extern __shared__ __align__(16) unsigned char c[];\n"
        "  y[0] = a[0] + b[0] + c[0];\n}\n"
        'extern "C" { __global__ __launch_bounds__(64) void two() {} }\n'
        "static __global__ void three(const int *x) {}\n"
    )
    assert build.build_module([source], tmp_path / "k.so") == ["one", "three", "two"]


def test_module_needs_the_driver_by_its_soname_only(kernels, tmp_path):
    # The driver is loaded privately, as when it comes through LD_LIBRARY_PATH: the module must still find it.
    program = ("import ctypes, sys; ctypes.CDLL(sys.argv[1], ctypes.RTLD_LOCAL); "
               "print(bool(ctypes.CDLL(sys.argv[2]).__softcuda_launch_axpy))")
    driver = build.build_driver(build.build_dir())
    done = run_child([sys.executable, "-c", program, str(driver), str(kernels)], {})
    assert done.stdout == "True\n", done.stderr


def test_source_that_does_not_compile_is_reported_with_the_compilers_words(host_tools, tmp_path):
    source = tmp_path / "k.cu"
    source.write_text(KERNEL.format(name="fill", value="no_such_name"))
    with pytest.raises(build.BuildError, match="no_such_name"):
        build.build_module([source], tmp_path / "k.so")


def test_missing_cuda_h_is_reported_with_what_to_install(tmp_path):
    with pytest.raises(build.BuildError, match="pip install nvidia-cuda-runtime"):
        build.find_cuda_include(tmp_path)


def test_old_cuda_h_is_refused(tmp_path):
    (tmp_path / "cuda.h").write_text("#define CUDA_VERSION 12080\n")
    with pytest.raises(build.BuildError, match="CUDA_VERSION 12080, 13000 or newer is needed"):
        build.find_cuda_include(tmp_path)


def test_cuda_path_comes_before_nvcc(tmp_path, monkeypatch):
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda.h").write_text("#define CUDA_VERSION 13000\n")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    assert build.find_cuda_include() == (tmp_path / "include").resolve()


def test_headers_of_packages_are_found_without_a_toolkit(tmp_path, monkeypatch):
    include = tmp_path / "nvidia" / "cu13" / "include"
    include.mkdir(parents=True)
    (include / "cuda.h").write_text("#define CUDA_VERSION 13000\n")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    assert build.find_cuda_include() == include.resolve()


def test_missing_compiler_is_reported(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(build.BuildError, match="no-such-compiler is not on PATH"):
        build.find_compiler()


def test_command_line_builds_a_module(host_tools, tmp_path):
    source = tmp_path / "k.cu"
    source.write_text(KERNEL.format(name="fill", value="VALUE"))
    command = [sys.executable, HERE / "build.py", "module", tmp_path / "k.so", source, "-DVALUE=1.f"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.stdout == "kernels: fill\n", done.stderr
    done = subprocess.run(list(map(str, command[:-1])), capture_output=True, text=True)
    assert done.returncode == 1 and "VALUE" in done.stderr


def test_pycuda_wheel_is_reused_and_imports_with_the_driver(pycuda_wheel, driver, tmp_path):
    assert build_pycuda.build_wheel() == pycuda_wheel
    with zipfile.ZipFile(pycuda_wheel) as wheel:
        wheel.extractall(tmp_path)
    program = (f"import ctypes, sys; sys.path.insert(0, {str(tmp_path)!r}); "
               f"ctypes.CDLL({str(driver)!r}, ctypes.RTLD_GLOBAL); import pycuda.driver as d; d.init(); "
               "print(d.Device(0).name(), d.__file__.startswith(sys.path[0]))")
    done = run_child([sys.executable, "-c", program], {})
    assert done.stdout == "softcuda (CPU) True\n", done.stderr
