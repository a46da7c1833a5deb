"""The layers import one way only, and importing minigraph needs NumPy alone."""
from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "minigraph"

LAYERS = (
    ("base",),
    ("memory.packing", "memory.machine", "memory.profile", "memory.layout", "formats.atomic", "formats.idx",
     "formats.recordio"),
    ("ops",),
    ("graph",),
    ("plan",),
    ("symbol",),
    ("memory.schedule", "memory.policies"),
    ("passes",),
    ("device",),
    ("context", "random", "formats.params", "formats.safetensors", "storage", "ndarray"),
    ("breakage", "binding", "bound"),
    ("inspection", "profiling", "comparison"),
    ("programs", "executor", "bind"),
    ("settings",),
    ("formats", "initializer", "io_base", "io", "recordio", "augment", "augment_pixels",
     "image_iter", "image", "loss_scaler", "lr_scheduler", "metric_labels", "metric_base", "metric", "callback",
     "kvstore", "optimizer_counts", "optimizer_base", "optimizer_more", "optimizer_large_batch", "optimizer", "model",
     "heads", "module_base", "module_support", "module_states", "python_module", "sequential_module",
     "module", "bucketing",
     "feedforward", "monitor", "operator", "profiler", "runtime", "custom", "custom_op",
     "rnn_cell", "rnn_fused", "rnn_modifier", "rnn_conv", "rnn",
     "array_checks", "symbol_checks", "test_utils", "visualization", "planning", "sizing", "networks", "cache_times",
     "measure"),
    ("explain", "cli", "__main__", ""),
)
"""From the bottom up. A module may import its own layer and those below it when it is loaded."""


def layer_of(module: str) -> int:
    """The layer of a module, by its longest listed prefix."""
    best = (-1, -1)
    for number, names in enumerate(LAYERS):
        for name in names:
            if module == name or (name and module.startswith(name + ".")):
                best = max(best, (len(name), number))
    assert best[1] >= 0, f"minigraph.{module} belongs to no layer; give it one in {Path(__file__).name}"
    return best[1]


def module_name(path: Path) -> str:
    """`ops.conv` for minigraph/ops/conv.py, "" for the package itself."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def loaded_imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements that run when the module is loaded: not those in functions or for type checkers."""
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            todo.extend(node.orelse)
        elif isinstance(node, (ast.If, ast.Try)):
            todo.extend(child for child in ast.walk(node) if isinstance(child, (ast.Import, ast.ImportFrom)))


def imported(path: Path) -> Iterator[str]:
    """Modules of minigraph that a file imports when it is loaded."""
    here = module_name(path).split(".") if module_name(path) else []
    package = here if path.name == "__init__.py" else here[:-1]
    for node in loaded_imports(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[:len(package) - node.level + 1] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                target = PACKAGE.joinpath(*base, alias.name)
                is_module = target.is_dir() or target.with_suffix(".py").exists()
                yield ".".join([*base, alias.name] if is_module else base)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=module_name)
def test_a_module_imports_only_its_own_layer_and_those_below(path: Path) -> None:
    module = module_name(path)
    if module == "zoo" or module.startswith("zoo."):
        pytest.skip("the zoo stands above all layers")
    upward = [name for name in imported(path) if layer_of(name) > layer_of(module)]
    assert not upward, f"minigraph.{module} imports {upward} from layers above it"


def test_no_pass_names_an_operator() -> None:
    """What a pass must know about an op is a member of the op; only the nodes that passes add are named."""
    framework = {"_accumulate", "_assign", "_grad_add", "_copy", "zeros_like", "_sum_squares",
                 "_global_norm_scale", "_scale_gradient", "_find_nonfinite", "_check_finite", "_swap_out",
                 "_swap_release", "_swap_in", "_swap_arrive", "_swap_home"}
    from minigraph.ops import get_op, names
    spelled = {s for n in names() for s in (n, *get_op(n).aliases)} - framework
    for path in sorted((PACKAGE / "passes").glob("*.py")):
        texts = {node.value for node in ast.walk(ast.parse(path.read_text()))
                 if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        assert not texts & spelled, f"{path.name} names {texts & spelled}"


def test_importing_minigraph_loads_no_optional_package() -> None:
    script = ("import sys, minigraph; "
              "print([m for m in ('pycuda', 'torch', 'sklearn', 'tqdm', 'matplotlib', 'mlxtend') if m in sys.modules])")
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
