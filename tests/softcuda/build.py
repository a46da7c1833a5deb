"""Build the software CUDA driver, and kernel modules for it, with a host compiler.

``build_driver`` compiles ``*.cpp`` here against the real ``cuda.h`` into ``libcuda.so.1``; every other
function that the header declares becomes a weak stub that returns CUDA_ERROR_NOT_SUPPORTED. ``build_module``
compiles unchanged ``.cu`` files into one shared object that the driver loads where a GPU would load a cubin:
each file is preprocessed with ``__global__``, ``__shared__`` and ``__launch_bounds__`` kept as markers, the
markers are rewritten, and an entry point and a table of parameters are added for each kernel.

Both reuse what an earlier call built from the same sources, and may be called from several processes at once.
Command line: ``python build.py driver OUT_DIR`` and ``python build.py module OUT.so KERNELS.cu ...``.
"""
from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
DRIVER_SOURCES = ("context", "describe", "engine", "fault", "graph", "mapping", "memory", "module", "race", "settings",
                  "stream")
DRIVER_FLAGS = ("-std=c++17", "-O2", "-g1", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden",
                "-ftls-model=initial-exec")
# -w: nvcc judges the kernels' warnings. No exceptions: a fault leaves a kernel's frames without unwinding.
MODULE_FLAGS = ("-fno-gnu-unique", "-std=c++17", "-O2", "-g1", "-w", "-fPIC", "-fno-strict-aliasing", "-fno-exceptions")
SANITIZE_FLAGS = ("-fsanitize=alignment,bounds", "-fsanitize-undefined-trap-on-error")
HEADERS_HINT = (
    "install a CUDA 13 toolkit, or the headers alone: pip install nvidia-cuda-runtime==13.0.96 "
    "nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 nvidia-cuda-profiler-api==13.0.85"
)


class BuildError(RuntimeError):
    """A compiler or a header is missing, or a build failed; the text says which and what to do."""


# ---- what the machine offers ---------------------------------------------------------------------


def cache_dir() -> Path:
    """Where built files are kept: ``$MINIGRAPH_BUILD_CACHE``, else ``~/.cache/minigraph``."""
    return Path(os.environ.get("MINIGRAPH_BUILD_CACHE") or Path.home() / ".cache" / "minigraph")


def build_dir() -> Path:
    """Where this checkout keeps what it builds; checkouts that share a cache do not overwrite each other."""
    return cache_dir() / f"softcuda-{_digest(HERE)[:12]}"


def find_compiler() -> str:
    """The host C++ compiler: ``$CXX``, else ``g++``. Raises BuildError if it is not on PATH."""
    name = os.environ.get("CXX") or "g++"
    if found := shutil.which(name):
        return found
    raise BuildError(f"the C++ compiler {name} is not on PATH: install g++ 9 or newer, or set CXX")


def find_cuda_include(include: str | os.PathLike[str] | None = None) -> Path:
    """The folder of CUDA 13's ``cuda.h``: the argument, or the first that has one of ``$CUDA_PATH/include``,
    nvcc's toolkit, the ``nvidia/cu13`` packages of this interpreter, and the toolkit's usual folder.

    Raises BuildError if none has it, or if it is of an older CUDA.
    """
    candidates = [Path(include)] if include else list(_include_candidates())
    for folder in candidates:
        if (folder / "cuda.h").is_file():
            return _check_version(folder.resolve())
    raise BuildError(f"cuda.h is in none of {', '.join(map(str, candidates))}: {HEADERS_HINT}")


def _include_candidates() -> Iterator[Path]:
    if path := os.environ.get("CUDA_PATH"):
        yield Path(path) / "include"
    if toolkit := _nvcc_toolkit():
        yield toolkit / "include"
    for folder in sys.path:
        if (packages := Path(folder) / "nvidia" / "cu13" / "include").is_dir():
            yield packages
    yield Path("/usr/local/cuda/include")


def _nvcc_toolkit() -> Path | None:
    """The toolkit of the nvcc on PATH. It is asked: what is on PATH may be a script that starts another."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return None
    said = subprocess.run([nvcc, "--dryrun", "-x", "cu", "-E", os.devnull], capture_output=True, text=True)
    here = re.search(r"^#\$ _HERE_=(.+)$", said.stderr, re.MULTILINE)
    return Path(here.group(1)).parent if here else Path(nvcc).resolve().parent.parent


def _check_version(include: Path) -> Path:
    header = include / "cuda.h"
    match = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", header.read_text(errors="replace"))
    version = int(match.group(1)) if match else 0
    if version < 13000:
        raise BuildError(f"{header} is of CUDA_VERSION {version}, 13000 or newer is needed: {HEADERS_HINT}")
    return include


# ---- building once -------------------------------------------------------------------------------


def _run(command: Sequence[str | os.PathLike[str]]) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(map(str, command))} failed:\n{done.stderr[-6000:]}")
    return done.stdout


def _run_all(commands: Sequence[Sequence[str | os.PathLike[str]]]) -> list[str]:
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(_run, commands))


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold ``path``.lock against other processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def _is_built(target: Path, key: str) -> bool:
    stamp = Path(f"{target}.key")
    return target.is_file() and stamp.is_file() and stamp.read_text() == key


def _install(built: Path, target: Path, key: str) -> None:
    """Under a temporary name first: a process that has the old file loaded keeps it."""
    staged = Path(f"{target}.new")
    shutil.copyfile(built, staged)
    staged.chmod(0o755)
    staged.replace(target)
    Path(f"{target}.key").write_text(key)


# ---- the driver ----------------------------------------------------------------------------------


def build_driver(out_dir: str | os.PathLike[str], cuda_include: str | os.PathLike[str] | None = None) -> Path:
    """Build the driver into ``out_dir`` and return the path of its ``libcuda.so.1``.

    ``libcuda.so`` beside it is for the linker. Raises BuildError without a compiler or ``cuda.h``.
    """
    compiler, include = find_compiler(), find_cuda_include(cuda_include)
    target = Path(out_dir).resolve() / "libcuda.so.1"
    sources = sorted(path for path in HERE.iterdir() if path.suffix in (".cpp", ".h"))
    texts = [path.read_text() for path in (*sources, Path(__file__))]
    key = _digest(compiler, include, (include / "cuda.h").stat().st_size, DRIVER_FLAGS, *texts)
    with locked(target):
        if not _is_built(target, key):
            with tempfile.TemporaryDirectory() as work:
                _install(_compile_driver(compiler, include, Path(work)), target, key)
        link = target.with_name("libcuda.so")
        if not link.is_symlink():
            link.symlink_to(target.name)
    return target


def _compile_driver(compiler: str, include: Path, work: Path) -> Path:
    generated = work / "generated.cpp"
    generated.write_text(_generated_source(compiler, include))
    sources = [HERE / f"{name}.cpp" for name in DRIVER_SOURCES] + [generated]
    objects = [work / f"{source.stem}.o" for source in sources]
    _run_all([[compiler, *DRIVER_FLAGS, f"-isystem{include}", "-c", source, "-o", built]
              for source, built in zip(sources, objects, strict=True)])
    library = work / "libcuda.so.1"
    _run([compiler, "-shared", "-Wl,-soname,libcuda.so.1", "-o", library, *objects, "-pthread", "-ldl"])
    return library


def _generated_source(compiler: str, include: Path) -> str:
    """Weak stubs of all functions that the headers declare, and the names of the results."""
    names: set[str] = set()
    text = ""
    for header in ("cuda.h", "cudaProfiler.h"):
        # Both the versioned and the plain names: callers link to either.
        for internal in ([], ["-D__CUDA_API_VERSION_INTERNAL"]):
            text = _run([compiler, "-E", "-P", *internal, f"-I{include}", "-x", "c", include / header])
            names |= set(re.findall(r"\bCUresult\s+(cu\w+)\s*\(", text))
    results = re.findall(r"\b(CUDA_(?:SUCCESS|ERROR_\w+))\s*=\s*(\d+)", text)
    stub = 'WEAK int {0}() {{ return softcuda_not_supported("{0}"); }}\n'
    stubs = "".join(stub.format(name) for name in sorted(names))
    cases = "".join(f'    case {number}: return "{name}";\n' for name, number in dict(results).items())
    return (
        '#define WEAK __attribute__((weak, visibility("default")))\n'
        'extern "C" {\nint softcuda_not_supported(const char *);\n' + stubs
        + "const char *softcuda_result_name(int result) {\n  switch (result) {\n" + cases
        + "    default: return nullptr;\n  }\n}\n}\n"
    )


# ---- modules -------------------------------------------------------------------------------------


def build_module(
    cu_files: Sequence[str | os.PathLike[str]],
    out_path: str | os.PathLike[str],
    sanitize: bool = False,
    flags: Sequence[str] = (),
    cuda_include: str | os.PathLike[str] | None = None,
) -> list[str]:
    """Compile ``cu_files`` into the module ``out_path`` and return the names of its kernels, sorted.

    Kernels are ``extern "C" __global__`` functions. ``flags`` are further compiler flags (``-Ifolder``,
    ``-Dname``). ``sanitize`` traps misaligned accesses and indices beyond arrays of known size, at up to
    twice the run time. Raises BuildError with the compiler's words if a file does not compile.
    """
    compiler, include = find_compiler(), find_cuda_include(cuda_include)
    target = Path(out_path).resolve()
    options = [*MODULE_FLAGS, f"-I{HERE}", f"-isystem{include}", *flags]
    if sanitize:
        options += SANITIZE_FLAGS
    preprocess = [compiler, *options, "-E", "-x", "c++", "-include", "softcuda.h"]
    rewritten = [_rewrite(text) for text in _run_all([[*preprocess, str(path)] for path in cu_files])]
    texts = [text for text, _ in rewritten]
    key = _digest(compiler, options, *texts)
    with locked(target):
        if not _is_built(target, key):
            with tempfile.TemporaryDirectory() as work:
                _install(_compile_module(compiler, options, texts, Path(work)), target, key)
    return sorted(name for _, kernels in rewritten for name in kernels)


# An address in the thread's copy of the module's __shared__ arrays.
_ANCHOR = 'extern "C" void *__softcuda_shared_anchor() { static thread_local char anchor; return &anchor; }'


def _compile_module(compiler: str, options: Sequence[str], texts: Sequence[str], work: Path) -> Path:
    sources: list[Path] = []
    for text in (*texts, _ANCHOR):
        sources.append(work / f"{len(sources)}.ii")
        sources[-1].write_text(text)
    objects = [source.with_suffix(".o") for source in sources]
    compile_one = [compiler, *options, "-c"]
    _run_all([[*compile_one, str(s), "-o", str(o)] for s, o in zip(sources, objects, strict=True)])
    # The module must name libcuda.so.1 as needed, so that the loader finds the executor in it however the
    # driver was loaded; an empty library of that name is enough to link with.
    needed, module = work / "libcuda.so", work / "module.so"
    _run([compiler, "-shared", "-Wl,-soname,libcuda.so.1", "-x", "c++", os.devnull, "-o", needed])
    _run([compiler, "-shared", "-o", module, *objects, "-Wl,--no-as-needed", needed])
    return module


def _rewrite(text: str) -> tuple[str, list[str]]:
    """A preprocessed .cu file as plain C++ with an entry point for each kernel; and the kernels' names."""
    text, bounds = _extract_launch_bounds(text)
    kernels = _find_kernels(text, bounds)
    text = _rewrite_shared(text)
    text = re.sub(r"__softcuda_bounds\d+__", "", text).replace("__softcuda_global__", "")
    declaration = 'extern "C" char *__softcuda_dynamic_shared();\n'
    entry_points = [_entry_point(name, bound) for name, bound in kernels.items()]
    return "\n".join([declaration, text, *entry_points]), list(kernels)


def _extract_launch_bounds(text: str) -> tuple[str, list[str]]:
    """Replace each __launch_bounds__(...) by a numbered marker. Its arguments may nest parentheses."""
    parts: list[str] = []
    bounds: list[str] = []
    at = 0
    for match in re.finditer(r"__softcuda_launch_bounds__\s*\(", text):
        end, depth = match.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        parts += [text[at : match.start()], f" __softcuda_bounds{len(bounds)}__ "]
        bounds.append(text[match.end() : end - 1])
        at = end
    return "".join(parts) + text[at:], bounds


_KERNEL = re.compile(
    r"(?P<template>template\s*<[^;{}]*>\s*)?"
    r'(?:(?:extern\s+"C"|static|inline)\s+)*'
    r"__softcuda_global__(?P<qualifiers>(?:\s+__softcuda_bounds\d+__|\s+void)+)\s+(?P<name>\w+)\s*\("
)


def _find_kernels(text: str, bounds: Sequence[str]) -> dict[str, str]:
    """Kernel name -> the arguments of its launch bounds. Templates have no symbol of their own: left out."""
    kernels = {}
    for match in _KERNEL.finditer(text):
        if match["template"]:
            continue
        marker = re.search(r"__softcuda_bounds(\d+)__", match["qualifiers"])
        kernels[match["name"]] = bounds[int(marker.group(1))] if marker else "1024"
    return kernels


def _rewrite_shared(text: str) -> str:
    """Blocks that run at once run on different OS threads, so a __shared__ array is a thread's own."""
    aligned = r"(?:(?:__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|alignas\s*\([^)]*\))\s*)?"
    text = re.sub(
        rf"extern\s+__softcuda_shared__\s+{aligned}([\w:]+(?:\s+\w+)?)\s+{aligned}(\w+)\s*\[\s*\]\s*;",
        r"\1* \2 = (\1*)__softcuda_dynamic_shared();",
        text,
    )
    text = re.sub(r"__softcuda_shared__\s+(alignas\s*\([^)]*\))", r"\1 static thread_local", text)
    return text.replace("__softcuda_shared__", "static thread_local")


def _entry_point(name: str, bounds: str) -> str:
    return (
        f'extern "C" int __softcuda_launch_{name}(const softcuda::LaunchConfig *config) {{\n'
        f"  auto kernel = [](const char *params) {{ softcuda::call(&{name}, params); }};\n"
        f"  return softcuda::run(config, kernel);\n}}\n"
        f'extern "C" {{ extern const softcuda::KernelInfo __softcuda_info_{name};\n'
        f"const softcuda::KernelInfo __softcuda_info_{name} =\n"
        f"    softcuda::describe(&{name}, softcuda::first({bounds})); }}\n"
    )


# ---- command line --------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Build the software CUDA driver and modules for it.")
    parser.add_argument("--cuda-include", help="folder of cuda.h")
    commands = parser.add_subparsers(dest="command", required=True)
    driver = commands.add_parser("driver", help="build libcuda.so.1")
    driver.add_argument("out_dir")
    module = commands.add_parser("module", help="build a kernel module; further options go to the compiler")
    module.add_argument("out_path")
    module.add_argument("cu_files", nargs="+")
    module.add_argument("--sanitize", action="store_true", help="trap misaligned accesses and wild indices")
    given, flags = parser.parse_known_args(arguments)
    try:
        if given.command == "driver":
            print(build_driver(given.out_dir, given.cuda_include))
        else:
            names = build_module(given.cu_files, given.out_path, given.sanitize, flags, given.cuda_include)
            print("kernels:", *names)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
