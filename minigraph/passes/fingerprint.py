"""The fingerprint of a program: what a saved plan was made from, computed without compiling anything."""
from __future__ import annotations

import hashlib

import numpy as np

from ..graph import UPDATE, Graph, GraphBuilder
from ..ops.control import control_size
from .compilation import CONTROL, Request, Updater


def fingerprint(symbol_graph: Graph, request: Request) -> str:
    """A digest of the bound graph and of all that decides what a program computes: the program, gradient requests,
    inputs, the optimizer's form, fusion, encodings, and the device's ways to compute and its layouts.

    Memory mode, budget and machine are no part of it: they change where bytes lie, and no result, so a plan made for
    any of them serves. Hyperparameters that are filled in before each step, such as rates, are no part either, nor are
    the names of operators, which may be numbered differently in another process; those of variables and outputs are.
    """
    graph = symbol_graph
    requests = sorted(request.requests.items()) if request.program != "eval" else []
    algorithms, fuses = request.algorithms, request.fuse and request.fuses
    encoded = request.encode and request.program in ("train", "step")
    folded = request.fold and request.program == "eval"
    digest = hashlib.sha256(f"{request.program} {requests} {sorted(request.inputs)} {sorted(request.skip)} "
                            f"{request.fuse} {encoded} {folded} {_named(algorithms)} {_named(fuses)} "
                            f"{_named(request.layouts)} {graph.outputs} {graph.output_names}\n".encode())
    for i, op in enumerate(graph.op):
        kind = f"{graph.variable_class.get(i)} {graph.name[i]}" if op is None else op.name
        types = [(graph.shape[e], str(graph.dtype[e])) for e in graph.entries(i)]
        digest.update(f"{kind} {graph.params[i]} {graph.inputs[i]} {types}\n".encode())
    if request.updater is not None and request.program in ("step", "update"):
        digest.update(_form(request.updater).encode())
    elif request.scales_loss:
        digest.update(b"loss scale")
    return digest.hexdigest()


def _named(function: object) -> str:
    return f"{getattr(function, '__module__', None)} {getattr(function, '__qualname__', None)}"


def _form(updater: Updater) -> str:
    """What an optimizer adds to a graph, shown by its update of one small parameter."""
    b = GraphBuilder(Graph(), UPDATE)
    control = b.variable(CONTROL, (control_size(1),), np.float32, "input")
    scale, unscale = (b.variable(name, (1,), np.float32, "input") if wanted else None
                      for name, wanted in (("scale", updater.clips_global_norm), ("unscale", updater.scales_loss)))
    weight, gradient, *states = (b.variable(name, (1,), np.float32, "state")
                                 for name in ("weight", "gradient", *updater.state_names()))
    updater.add_update(b, 0, "w_weight", weight, gradient, states, control, scale, unscale)
    added = [(op.name, b.graph.params[i], b.graph.inputs[i]) for i, op in enumerate(b.graph.op) if op is not None]
    return f"{updater.clips_global_norm} {updater.state_names()} {added}"
