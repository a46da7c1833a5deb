"""The command line: `minigraph plan` tells what a network takes, `minigraph explain` how it is compiled.

Bad input gives one line on standard error and exit code 2.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from . import __version__
from .base import MXNetError
from .explain import explain
from .memory.policies import POLICIES
from .networks import load_network, parse_settings, parse_shapes
from .passes.compilation import MEMORY_MODES
from .passes.pipeline import compile_program
from .plan import serialize
from .plan.report import report
from .planning import PROGRAMS, Program, prepare

_EPILOG = """NETWORK is zoo.NAME (zoo.mlp, zoo.lenet, zoo.resnet), a module or a Python file with get_symbol, or MXNet's
-symbol.json. An image_shape that get_symbol takes comes from the shape of data unless it is given by --arg.
Example: minigraph plan zoo.resnet --arg depth=50 --shape data=16,3,224,224 --optimizer-arg momentum=0.9"""
_DEFAULT_MAX_LINES = 200


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command with the arguments after the program's name; the exit code."""
    given = _parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a warning tells, the error that follows tells too
            program = _prepare(given)
        given.run(program, given)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MXNetError, OSError) as error:
        print(f"minigraph {given.command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="minigraph", description="Plan the memory of networks before they run.")
    parser.add_argument("--version", action="version", version=f"minigraph {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    plan = _command(commands, "plan", "print what a program of the network takes in memory", _print_plan)
    plan.add_argument("--json", action="store_true", help="print one JSON object, all sizes in bytes")
    plan.add_argument("--save", metavar="FILE", help="write the plan to a file (compressed if it ends in .gz)")
    each = _command(commands, "explain", "print the network at each stage of its compilation", _print_stages)
    each.add_argument("--max-lines", type=int, default=_DEFAULT_MAX_LINES, metavar="N",
                      help=f"lines shown of each stage, 0 for all (default {_DEFAULT_MAX_LINES})")
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
                        help=f"{', '.join((*MEMORY_MODES, *POLICIES))} (default plain, and auto with a budget)")
    parser.add_argument("--budget", metavar="BYTES", help="bytes of both arenas that a policy keeps to, such as 4GiB")
    parser.add_argument("--machine", default="cpu", metavar="NAME",
                        help="whose times a policy weighs, such as V100 (default cpu)")
    parser.set_defaults(run=run)
    return parser


def _prepare(given: argparse.Namespace) -> Program:
    shapes = parse_shapes(given.shape)
    symbol = load_network(given.network, parse_settings(given.arg), shapes)
    optimizer = (given.optimizer or "sgd") if given.program == "step" else given.optimizer
    memory = given.memory or ("plain" if given.budget is None else "auto")
    return prepare(symbol, shapes, optimizer, given.program, memory, budget=given.budget, machine=given.machine,
                   optimizer_params=parse_settings(given.optimizer_arg))


def _print_plan(program: Program, given: argparse.Namespace) -> None:
    plan = compile_program(program.graph, program.request, program.layout)
    if given.save:
        serialize.save(plan, given.save)
    figures = report(plan)
    print(json.dumps(figures.json()) if given.json else figures.text())


def _print_stages(program: Program, given: argparse.Namespace) -> None:
    for section in explain(program, given.max_lines):
        print(section)
