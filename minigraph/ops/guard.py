"""Guards around the members that users' operators declare: whatever one raises, and whatever it returns that is not
what `Op` says, becomes one error that names operator and member; whoever knows the node adds its name."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import FunctionType
from typing import Any

import numpy as np

from ..base import Algorithm, Cost, MXNetError
from .op import Encoding, Op, OperatorError, Sliced

Fault = Callable[[Op, tuple[Any, ...], Any], str]
"""From an op, what its member was given and what it returned, to what that must be; "" where it is so."""
_BUILDING = ("expand", "gradient", "fold", "stages")
"""Members whose first argument is the builder, and the second one the parameters."""


def guard(op: Op) -> None:
    """Guard all members that the class of an op overrides."""
    for name, default in vars(Op).items():
        if isinstance(default, FunctionType) and not name.startswith("_") and getattr(type(op), name) is not default:
            setattr(op, name, _guarded(op, name))


def _guarded(op: Op, name: str) -> Callable[..., Any]:
    member, fault = getattr(op, name), _FAULTS.get(name)

    @wraps(member)
    def call(*given: Any) -> Any:
        params = given[name in _BUILDING] if len(given) > (name in _BUILDING) else None
        before = tuple(given[2]) if name == "compute" else ()
        try:
            found = member(*given)
        except MXNetError:
            raise
        except Exception as error:
            raise OperatorError(op, name, params, f"raised {type(error).__name__}: {error}") from error
        if any(now is not was for now, was in zip(given[2] if before else (), before, strict=True)):
            raise OperatorError(op, name, params, "put another array into outs; write into the one that is there: "
                                                  "outs[0][...] = value")
        wanted = fault(op, given, found) if fault is not None else ""
        if wanted:
            raise OperatorError(op, name, params, f"returned {found!r}; it must return {wanted}")
        return found
    return call


# -- what members return -------------------------------------------------------------------------------------
def _kind(test: Callable[[Any], bool], wanted: str) -> Fault:
    return lambda op, given, found: "" if test(found) else wanted


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_name_list(value: Any) -> bool:
    return _is_list(value) and all(isinstance(name, str) for name in value) and len({*value}) == len(value)


def _is_shape(value: Any) -> bool:
    return value is None or (_is_list(value) and all(d is None or _is_int(d) for d in value))


def _is_dtype(value: Any) -> bool:
    return value is None or isinstance(value, np.dtype)


def _is_cost(value: Any) -> bool:
    return isinstance(value, Cost) and all(isinstance(n, (int, float, np.number)) and 0 <= n < np.inf
                                           for n in (value.flops, value.read_bytes, value.written_bytes))


def _is_algorithm(value: Any) -> bool:
    return isinstance(value, Algorithm) and isinstance(value.name, str) and all(
        _is_int(n) and n >= least for n, least in ((value.workspace_bytes, 0), (value.extra_bytes, 0),
                                                   (value.chunk_rows, 1)))


def _counts(op: Op, params: Any) -> tuple[int, int]:
    return len(op.inputs(params)), len(op.outputs(params))


def _inferred(is_one: Callable[[Any], bool], what: str) -> Fault:
    def fault(op: Op, given: tuple[Any, ...], found: Any) -> str:
        ins, outs = len(given[1]), len(given[2])
        fits = isinstance(found, tuple) and len(found) == 2 and all(map(_is_list, found)) \
            and (len(found[0]), len(found[1])) == (ins, outs) and all(map(is_one, (*found[0], *found[1])))
        return "" if fits else f"a list for its {ins} inputs and one for its {outs} outputs, of {what}"
    return fault


def _pairs(op: Op, given: tuple[Any, ...], found: Any) -> str:
    ins, outs = _counts(op, given[0])
    fits = _is_list(found) and all(_is_list(pair) and len(pair) == 2 and all(map(_is_int, pair))
                                   and 0 <= pair[0] < ins and 0 <= pair[1] < outs for pair in found)
    return "" if fits else f"pairs of the number of an input, below {ins}, and of an output, below {outs}"


def _numbers(op: Op, given: tuple[Any, ...], found: Any) -> str:
    ins, _ = _counts(op, given[0])
    fits = _is_list(found) and all(_is_int(k) and 0 <= k < ins for k in found)
    return "" if fits else f"numbers of inputs, below {ins}"


def _entries(count: Callable[[Op, tuple[Any, ...]], int], optional: bool) -> Fault:
    def fault(op: Op, given: tuple[Any, ...], found: Any) -> str:
        wanted = count(op, given)
        fits = _is_list(found) and len(found) == wanted and all(_is_int(e) or (optional and e is None) for e in found)
        return "" if fits else f"{wanted} entries, as node() of the builder returns them{', or None' * optional}"
    return fault


def _aux(op: Op, given: tuple[Any, ...], found: Any) -> str:
    names = op.inputs(given[0])
    return "" if _is_name_list(found) and {*found} <= {*names} else f"names of its inputs {names}"


def _visible(op: Op, given: tuple[Any, ...], found: Any) -> str:
    count = len(op.outputs(given[0]))
    return "" if _is_int(found) and 1 <= found <= count else f"a number from 1 to its {count} outputs"


def _params(op: Op, given: tuple[Any, ...], found: Any) -> str:
    return "" if isinstance(found, op.Params) else f"parameters, a {op.Params.__name__}"


def _cuts(op: Op, given: tuple[Any, ...], found: Any) -> str:
    fits = found is None or (isinstance(found, Sliced) and (len(found.ins), len(found.outs))
                             == (len(given[1]), len(given[2])))
    return "" if fits else "None, or a Sliced of all inputs and outputs"


def _is_renaming(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str))


_NAMES = _kind(_is_name_list, "names, each once")
_RENAMING = _kind(_is_renaming, "None, or the name of an operator and what it needs")
_FAULTS: dict[str, Fault] = {
    "inputs": _NAMES,
    "outputs": _NAMES,
    "aux": _aux,
    "visible_outputs": _visible,
    "variable_attrs": _kind(lambda found: isinstance(found, dict) and all(isinstance(v, dict) for v in found.values()),
                            "a dictionary of attributes for each input that has any"),
    "attributes": _kind(lambda found: isinstance(found, Mapping) and all(isinstance(k, str) for k in found),
                        "a mapping of attributes"),
    "count_param": _kind(lambda found: found is None or isinstance(found, str), "None or the name of a parameter"),
    "is_loss": _kind(lambda found: isinstance(found, (bool, np.bool_)), "True or False"),
    "averages": _kind(lambda found: isinstance(found, (bool, np.bool_)), "True or False"),
    "infer_shape": _inferred(_is_shape, "shapes, which are None or tuples of int and None"),
    "infer_dtype": _inferred(_is_dtype, "numpy.dtype or None"),
    "completed": _params,
    "expand": _entries(lambda op, given: len(op.outputs(given[1])), optional=False),
    "gradient": _entries(lambda op, given: len(given[2]), optional=True),
    "stages": _entries(lambda op, given: len(op.outputs(given[1])), optional=False),
    "absorb": _RENAMING,
    "encoded": _RENAMING,
    "replay": _RENAMING,
    "fold": _kind(lambda found: found is None or (_is_list(found) and all(map(_is_int, found))), "None or entries"),
    "weight_rows": _kind(lambda found: found is None or _is_int(found), "None or an axis"),
    "algorithms": _kind(lambda found: _is_list(found) and len(found) > 0 and all(map(_is_algorithm, found)),
                        "one Algorithm or more, with whole numbers of bytes"),
    "id_ranges": _kind(_is_list, "an IdRange for each input of ids, or none"),
    "cost": _kind(_is_cost, "a Cost of finite numbers, 0 or more"),
    "inplace": _pairs,
    "mutates": _pairs,
    "view": _kind(lambda found: isinstance(found, (bool, np.bool_)), "True or False"),
    "view_offset": _kind(lambda found: _is_int(found) and found >= 0, "a number of bytes, 0 or more"),
    "unread": _numbers,
    "encoding": _kind(lambda found: found is None or isinstance(found, Encoding), "None or an Encoding"),
    "sliced": _cuts,
    "slice_params": _params,
    "samples": _kind(lambda found: isinstance(found, Sequence), "samples"),
}
