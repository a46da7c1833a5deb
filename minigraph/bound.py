"""A symbol bound to shapes: its graph, and the arrays that its programs keep in the persistent arena."""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .base import REAL_KINDS, MXNetError, Shape, TensorType
from .binding import Group, PersistentStorage, bind_graph, normalise_requests
from .breakage import PARAMETERS
from .graph import Graph
from .ndarray import NDArray
from .passes.compilation import CONTROL, gradient_name, head_gradient_name


def distinct(names: Sequence[str]) -> list[str]:
    """The names of outputs for people: those that several have, with the output's number."""
    count = Counter(names)
    return [name if count[name] == 1 else f"{name} (output {k})" for k, name in enumerate(names)]


def repeated_name(names: Sequence[str]) -> str | None:
    """The first name that is there twice, or None."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


class Bound:
    """Arguments, gradients and auxiliary states by name, each a handle to its place in the group's persistent arena.

    `inputs` are fed for every run and not kept. Arguments in `own` (by default those in `shapes`) may differ in shape
    from what the group holds under their names, and then get bytes of their own.
    """

    def __init__(self, symbol: Any, group: Group, shapes: Mapping[str, Shape], dtypes: Mapping[str, Any],
                 grad_req: str | Sequence[str] | Mapping[str, str], inputs: Sequence[str],
                 own: Collection[str] | None) -> None:
        self._symbol = symbol
        self._dtypes = dict(dtypes)
        self._shapes = dict(shapes)
        bound = bind_graph(symbol, shapes, self._dtypes)
        self._bound: Graph | None = bound
        self.arg_names: list[str] = symbol.list_arguments()
        self.aux_names: list[str] = symbol.list_auxiliary_states()
        self.output_names: list[str] = symbol.list_outputs()
        self.requests = normalise_requests(grad_req, self.arg_names)
        self.inputs = frozenset(inputs)
        self.group = group
        self.context = group.context
        self._types = {bound.name[i]: bound.type_of(bound.first[i]) for i in bound.variables()}
        self.output_types: list[TensorType] = [*map(bound.type_of, bound.outputs)]
        """Shapes and dtypes of the outputs in order."""
        group.release_unheld()
        self._place = self._place_names(set(shapes if own is None else own))
        self._holds = [group.hold(place) for place in self._place.values()]
        for name, hold in zip(self._place, self._holds, strict=True):
            hold.kind = self._types[name]
        self._declare()

    def program(self, name: str) -> Any:
        """The loaded program of that name; compiling `train` gives visible gradients their places."""
        raise NotImplementedError

    def input_type(self, name: str) -> TensorType:
        """Shape and dtype of an argument or auxiliary state."""
        return self._types[name]

    @property
    def arg_dict(self) -> dict[str, NDArray]:
        """Arguments by name; those fed for every run are not kept and not listed."""
        return {name: self._handle(self._place[name]) for name in self.arg_names if name not in self.inputs}

    @property
    def input_types(self) -> dict[str, TensorType]:
        """Shapes and dtypes of the arguments that are fed for every run, by name."""
        return {name: self._types[name] for name in self.arg_names if name in self.inputs}

    @property
    def aux_dict(self) -> dict[str, NDArray]:
        """Auxiliary states by name."""
        return {name: self._handle(self._place[name]) for name in self.aux_names}

    @property
    def grad_dict(self) -> dict[str, NDArray | None]:
        """Visible gradients by argument; None where none is asked for."""
        return {name: self._handle(gradient_name(self._place[name])) if self.requests[name] != "null" else None
                for name in self.arg_names if name not in self.inputs or self.requests[name] != "null"}

    @property
    def arg_arrays(self) -> list[NDArray]:
        """Arguments in order."""
        return list(self.arg_dict.values())

    @property
    def grad_arrays(self) -> list[NDArray | None]:
        """Gradients in the order of the arguments."""
        return list(self.grad_dict.values())

    @property
    def aux_arrays(self) -> list[NDArray]:
        """Auxiliary states in order."""
        return list(self.aux_dict.values())

    def copy_params_from(self, arg_params: Mapping[str, Any], aux_params: Mapping[str, Any] | None = None,
                         allow_extra_params: bool = False) -> None:
        """Set arguments and auxiliary states by name; unknown names raise unless allowed.

        ValueError, before any is set, for an unknown name or another shape than the bound one (a scalar fills it).
        """
        pairs: list[tuple[NDArray, Any]] = []
        for given, known, what in ((arg_params, self.arg_dict, "arguments"),
                                   (aux_params or {}, self.aux_dict, "states")):
            for name, value in given.items():
                if name not in known and not allow_extra_params:
                    raise ValueError(f"{name!r} is none of the {what}: {', '.join(known)}")
                if name in known and np.shape(value) not in ((), known[name].shape):
                    raise ValueError(f"{name} has shape {np.shape(value)}, the symbol needs {known[name].shape}")
                pairs += [(known[name], value)] if name in known else []
        for handle, value in pairs:
            handle[:] = value
        self.group.breakage.mended(PARAMETERS)

    @property
    def graph(self) -> Graph:
        """The symbol's graph with all shapes known, variables by the names of their places.

        It is let go once a program is loaded, and made again when another is compiled.
        """
        if self._bound is None:
            graph = self._bound = bind_graph(self._symbol, self._shapes, self._dtypes)
            for i in graph.variables():
                graph.name[i] = self._place[graph.name[i]]
        return self._bound

    def _place_names(self, own: set[str]) -> dict[str, str]:
        """The name of each variable in the layout: its own, unless the group holds something else under it."""
        graph = self._bound
        assert graph is not None
        result = {}
        for i in graph.variables():
            name = result[graph.name[i]] = graph.name[i]
            kind = self._types[name]
            if name in own and any(held != (kind.shape, kind.dtype) for held in self.group.types_under(name)):
                result[name] = graph.name[i] = f"{name}{kind.shape}{kind.dtype}"
        return result

    def _declare(self) -> None:
        """Give every kept argument, auxiliary state and visible gradient its place and its handle."""
        auxiliary = set(self.aux_names)
        heads = {head_gradient_name(k) for k in range(len(self.output_names))}
        for name, place in self._place.items():
            if name == CONTROL or name in heads:
                raise MXNetError(f"{name} is an argument, and also the name of an input that programs have themselves; "
                                 f"rename the variable")
            kind = self._types[name]
            if gradient_name(name) in self._place:
                raise MXNetError(f"{gradient_name(name)} is an argument, and also the name of the gradient of {name}; "
                                 f"rename one of the two variables")
            if name in auxiliary:
                self.group.layout.declare(place, kind.shape, kind.dtype, "auxiliary")
            elif name not in self.inputs:
                self.group.layout.declare(place, kind.shape, kind.dtype, "parameter")

    def _handle(self, name: str) -> NDArray:
        if name not in self.group.layout.places:
            self.program("train")
        if name not in self.group.layout.places:
            raise MXNetError(f"{name} has no bytes: no output of this symbol depends on it")
        return NDArray(PersistentStorage(self.group, name))

    def _checked(self, feeds: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
        """Arguments given by keyword, as arrays of the bound shapes."""
        for name, value in feeds.items():
            expected = self._types.get(name)
            if expected is None or name in self.aux_names:
                known = [n for n in self._types if n not in self.aux_names]
                raise TypeError(f"Unknown argument {name}; the arguments are {', '.join(known)}")
            array = value.storage.read() if isinstance(value, NDArray) else np.asarray(value)
            if array.shape != expected.shape:
                raise ValueError(f"Shape not match! Argument {name}, need: {expected.shape}, received: {array.shape}")
            if array.dtype.kind not in REAL_KINDS:
                raise TypeError(f"argument {name} takes real numbers, got an array of dtype {array.dtype}")
            yield name, array
