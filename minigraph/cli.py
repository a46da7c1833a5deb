"""The command line: `minigraph plan` tells what a network takes, `minigraph largest` how large it may grow, and
`minigraph explain` how it is compiled.

Bad input gives one line on standard error and exit code 2; a budget that is too small gives one and exit code 3.
"""
from __future__ import annotations

import argparse
import ast
import copy
import json
import operator
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NoReturn

from . import __version__, measure
from .base import MXNetError, OutOfMemoryError, Shape, format_bytes
from .explain import explain
from .formats.atomic import write_atomically
from .memory.policies import SEARCHES
from .networks import load_network, parse_settings, parse_shapes
from .passes.compilation import MODES, IgnoredMarksWarning
from .passes.pipeline import compile_program
from .plan import serialize, timeline
from .plan.plan import Plan
from .plan.report import Report, report
from .plan.techniques import recomputed, sliced, swapped_bytes
from .plan.trace import trace
from .planning import PROGRAMS, Program, least_budget, prepare, unplanned_bytes
from .sizing import Largest, Look, largest

_EPILOG = """NETWORK is zoo.NAME (zoo.mlp, zoo.lenet, zoo.resnet), a module or a Python file with get_symbol, or MXNet's
-symbol.json. An image_shape that get_symbol takes comes from the shape of data unless it is given by --arg.
Example: minigraph plan zoo.resnet --arg depth=50 --shape data=16,3,224,224 --optimizer-arg momentum=0.9"""
_LARGEST_EPILOG = f"""Write {{n}}, or a formula such as {{6*n+2}}, where n goes in --shape and --arg.
{_EPILOG}
Example: minigraph largest zoo.resnet --arg depth=50 --shape data={{n}},3,224,224 --budget 4GiB"""
_DEFAULT_MAX_LINES = 200
BAD_INPUT, TOO_SMALL = 2, 3
"""Exit codes."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command with the arguments after the program's name; the exit code."""
    given = _parser().parse_args(argv)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("ignore")  # what a warning tells, the error that follows tells too
            warnings.simplefilter("once", IgnoredMarksWarning)
            given.run(given)
        for text in dict.fromkeys(str(warning.message) for warning in told):
            _complain(given, text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OutOfMemoryError as error:
        if getattr(given, "json", False):
            print(json.dumps(_infeasible(error)))
        return _complain(given, error, TOO_SMALL)
    except (MXNetError, OSError) as error:
        return _complain(given, error, BAD_INPUT)
    return 0


def _complain(given: argparse.Namespace, error: Exception | str, code: int = 0) -> int:
    print(f"minigraph {given.command}: {' '.join(str(error).split())}", file=sys.stderr)
    return code


def _infeasible(error: OutOfMemoryError) -> dict[str, Any]:
    """What `--json` prints for a budget that is too small: of a plan's figures those that there are."""
    unknown = dict.fromkeys(("planned_bytes", "step_seconds", "plain_step_seconds", "recompute_flops", "swapped_bytes"))
    return {"feasible": False, "budget_bytes": error.free_bytes, "least_budget_bytes": error.asked_bytes, **unknown,
            "reason": str(error)}


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="minigraph", description="Plan the memory of networks before they run.")
    parser.add_argument("--version", action="version", version=f"minigraph {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    plan = _command(commands, "plan", "print what a program of the network takes in memory", _print_plan)
    plan.add_argument("--json", action="store_true", help="print one JSON object, all sizes in bytes")
    plan.add_argument("--save", metavar="FILE", help="write the plan to a file (compressed if it ends in .gz)")
    plan.add_argument("--timeline", metavar="FILE.html", help="write what is live when as a page for a browser")
    plan.add_argument("--alone", action="store_true",
                      help="tell of this plan only: compile neither the plain one beside it nor, for the least budget, "
                           "another one, which on a very deep network take as long again")
    plan.add_argument("--trace", metavar="FILE.json", help="write the simulated run as a Chrome trace")
    most = _command(commands, "largest", "find the largest batch, depth or other n that fits", _print_largest)
    most.epilog = _LARGEST_EPILOG
    most.add_argument("--over", metavar="WHAT", help="where n goes, if no {n} says so: batch (the first dimension of "
                                                     "every shape), or an argument of get_symbol such as depth")
    most.add_argument("--low", type=int, default=1, metavar="N", help="the least n to try (default 1)")
    most.add_argument("--high", type=int, default=None, metavar="N", help="the largest n to try (default: no bound)")
    most.add_argument("--json", action="store_true", help="print one JSON object, all sizes in bytes")
    most.add_argument("--progress", action="store_true",
                      help="tell of each n on standard error while it is looked for; a terminal is told anyway")
    most.set_defaults(machine=None)
    each = _command(commands, "explain", "print the network at each stage of its compilation", _print_stages)
    each.add_argument("--max-lines", type=int, default=_DEFAULT_MAX_LINES, metavar="N",
                      help=f"lines shown of each stage, 0 for all (default {_DEFAULT_MAX_LINES})")
    measure.add_command(commands).set_defaults(run=_print_machine)
    return parser


def _command(commands: Any, name: str, purpose: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=purpose, description=purpose, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", metavar="NETWORK", help="the network; see below")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of get_symbol")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=N,C,H,W", help="the shape of an input")
    parser.add_argument("--optimizer", default=None, metavar="NAME", help="optimizer of `step` (default sgd)")
    parser.add_argument("--optimizer-arg", action="append", default=[], metavar="NAME=VALUE",
                        help="an argument of the optimizer, such as momentum=0.9")
    parser.add_argument("--program", default="step", choices=PROGRAMS,
                        help="step: a whole training step; train: forward and backward; eval (default step)")
    parser.add_argument("--memory", metavar="MODE",
                        help=f"{', '.join(MODES)} (default plain, mirror for a network marked with force_mirroring, "
                             f"and auto with a budget)")
    parser.add_argument("--budget", metavar="BYTES", help="bytes of both arenas that a policy keeps to, such as 4GiB")
    parser.add_argument("--host-budget", metavar="BYTES", help="bytes of host memory that a policy may swap to")
    parser.add_argument("--disk", metavar="FOLDER", help="swap to a file in this folder in the place of host memory")
    parser.add_argument("--search", default="default", choices=SEARCHES,
                        help="`full` lets `auto` weigh the schedules of every policy (slower to plan)")
    parser.add_argument("--slices", type=int, default=1, metavar="N",
                        help="cut the batch into about N slices, which run through chains of operators one by one")
    parser.add_argument("--machine", default="cpu", metavar="NAME",
                        help="whose times a policy weighs, such as V100 (default cpu); its memory is the budget of "
                             "`largest` when none is given; a machine file ends in .json")
    parser.add_argument("--profile", metavar="FILE", help="measured times that replace the machine's own")
    parser.add_argument("--no-fuse", action="store_true", help="let every operator run by itself")
    parser.add_argument("--no-encode", action="store_true",
                        help="keep whole values where backward needs only a sign, or where a maximum was")
    parser.set_defaults(run=run)
    return parser


def _prepare(given: argparse.Namespace) -> Program:
    shapes = parse_shapes(given.shape)
    symbol = load_network(given.network, parse_settings(given.arg), shapes)
    optimizer = (given.optimizer or "sgd") if given.program == "step" else given.optimizer
    return prepare(symbol, shapes, optimizer, given.program, given.memory, budget=given.budget,
                   host_budget=given.host_budget, disk=given.disk, machine=given.machine, profile=given.profile,
                   fuse=not given.no_fuse, encode=not given.no_encode, search=given.search, slices=given.slices,
                   optimizer_params=parse_settings(given.optimizer_arg))


def _print_plan(given: argparse.Namespace) -> None:
    program = _prepare(given)
    plan = compile_program(program.graph, program.request, program.layout)
    if given.save:
        serialize.save(plan, given.save)
    if given.timeline:
        page = timeline.html(plan, given.machine, program.request.budget_bytes, f"{given.network}: {plan.program}")
        write_atomically(given.timeline, page.encode())
    if given.trace:
        write_atomically(given.trace, json.dumps(trace(plan, given.machine)).encode())
    figures = report(plan, machine=given.machine, budget_bytes=program.request.budget_bytes,
                     unplanned_bytes=unplanned_bytes(plan, given.machine)) if given.alone \
        else _report(program, plan)
    print(json.dumps(figures.json()) if given.json else figures.text())


def _report(program: Program, plan: Plan) -> Report:
    """The report of a plan, beside the plain plan where it differs, with the least budget that would have done."""
    request, plain, least = program.request, None, None
    if recomputed(plan) or swapped_bytes(plan) or sliced(plan):
        request = replace(request, memory="plain", slices=1, budget_bytes=None, verify=False)
        plain = compile_program(program.graph, request, copy.deepcopy(program.layout))
    if program.request.budget_bytes is not None:
        least = least_budget(program)
    return report(plan, plain=plain, machine=program.request.machine, budget_bytes=program.request.budget_bytes,
                  least_budget_bytes=least, unplanned_bytes=unplanned_bytes(plan, program.request.machine))


def _print_machine(given: argparse.Namespace) -> None:
    print(measure.run_command(given))


def _print_stages(given: argparse.Namespace) -> None:
    for section in explain(_prepare(given), given.max_lines):
        print(section)


# -- largest -------------------------------------------------------------------------------------------------
def _print_largest(given: argparse.Namespace) -> None:
    optimizer = (given.optimizer or "sgd") if given.program == "step" else given.optimizer
    told = _tell if given.progress or sys.stderr.isatty() else None
    found = largest(_builder(given), given.budget, given.machine, given.memory, given.low, given.high, optimizer,
                    given.program, told, host_budget=given.host_budget, disk=given.disk, fuse=not given.no_fuse,
                    encode=not given.no_encode, search=given.search, slices=given.slices,
                    optimizer_params=parse_settings(given.optimizer_arg))
    print(json.dumps(_largest_json(found)) if given.json else _largest_text(found))


def _tell(look: Look) -> None:
    print(look, file=sys.stderr, flush=True)


def _builder(given: argparse.Namespace) -> Callable[[int], tuple[Any, Mapping[str, Shape]]]:
    """From n to the network and shapes that the command line's texts mean with it."""
    args, shapes = given.arg, given.shape
    if given.over == "batch":
        shapes = [re.sub(r"=[^,]*", "={n}", text, count=1) for text in shapes]
    elif given.over is not None:
        args = [*(text for text in args if text.partition("=")[0] != given.over), f"{given.over}={{n}}"]
    if not any(_FORMULA.search(text) for text in (*args, *shapes)):
        raise MXNetError("nothing depends on n: write {n} in --shape or --arg, such as --shape data={n},3,224,224, or "
                         "give --over batch")

    def build(n: int) -> tuple[Any, Mapping[str, Shape]]:
        known = parse_shapes(_with_number(shapes, n))
        return load_network(given.network, parse_settings(_with_number(args, n)), known), known
    return build


_FORMULA = re.compile(r"\{([0-9+*/() -]*n[0-9n+*/() -]*)\}")


def _with_number(texts: Iterable[str], n: int) -> list[str]:
    """The texts with each formula in braces, of whole numbers, n, + - * // and parentheses, replaced by its value."""
    return [_FORMULA.sub(lambda match: str(_value(match[1], n)), text) for text in texts]


_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def _value(formula: str, n: int) -> int:
    def value(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id == "n":
            return n
        raise ValueError(formula)
    try:
        return value(ast.parse(formula, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError) as error:
        raise MXNetError(f"{{{formula}}} is no formula; write whole numbers, n, + - * // and parentheses, such as "
                         f"{{6*n+2}}") from error


def _largest_json(found: Largest) -> dict[str, Any]:
    figures = report(found.plan)
    return {"n": found.n, "budget_bytes": found.budget_bytes, "planned_bytes": figures.planned_bytes,
            "step_seconds": figures.step_seconds, "plain_step_seconds": figures.plain_step_seconds,
            "recompute_flops": figures.recompute_flops, "swapped_bytes": figures.swapped_bytes,
            "tried": [asdict(trial) for trial in found.tried]}


def _largest_text(found: Largest) -> str:
    figures = found.plan.figures
    lines = [f"largest n     {found.n}", f"budget        {format_bytes(found.budget_bytes)}",
             f"planned       {format_bytes(found.plan.planned_bytes)}",
             f"modelled step {figures.step_seconds:.4f} s, plain {figures.plain_step_seconds:.4f} s", "tried"]
    lines += [f"  {trial.n:<10} {'takes' if trial.fits else 'needs'} {format_bytes(trial.bytes)}"
              for trial in found.tried]
    return "\n".join(lines)
