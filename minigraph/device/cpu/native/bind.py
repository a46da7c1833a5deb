"""Instructions of a plan as prepared calls over its arenas."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....base import Algorithm, MXNetError, TensorType
from ....plan.plan import Plan
from .call import PREFIX, NativeOp, Operand, native_op
from .library import Library
from .run import NativeRun


def is_native(plan: Plan, i: int) -> bool:
    """Whether instruction `i` was planned for a kernel of the library."""
    return plan.instructions.algorithm[i].startswith(PREFIX)


def bind(plan: Plan, i: int, arrays: Sequence[np.ndarray], library: Library | None) -> NativeRun:
    """Instruction `i`, planned for the library, over live arrays of the plan's buffers.

    MXNetError when there is no library, or one that computes in another way than was planned.
    """
    code = plan.instructions
    native = native_op(code.op[i])
    if library is None or native is None:
        raise MXNetError(f"the plan of `{plan.program}` computes {code.name[i]} ({code.op[i]}) by "
                         f"{code.algorithm[i]!r}, for which this device has no kernels: compile the plan for this "
                         f"device, or load it with CpuDevice(kernels=\"auto\")")
    _check(plan, i, native)
    ins = [_operand(plan, b, arrays[b], k in code.unread[i]) for k, b in enumerate(code.reads[i])]
    outs = [_operand(plan, b, arrays[b]) for b in code.writes[i]]
    work = arrays[code.workspace[i]].ctypes.data if code.workspace[i] >= 0 else 0
    calls = native.calls(code.params[i], ins, outs, work, code.algorithm[i])
    for refusal in (call.refusal for call in calls if call.refusal is not None):
        refusal.node = code.name[i]
    return NativeRun(library, [call.pack(library) for call in calls])


def _operand(plan: Plan, b: int, array: np.ndarray, unread: bool = False) -> Operand:
    columns = plan.buffers
    return Operand(0 if unread else array.ctypes.data, columns.shape[b], columns.dtype[b], columns.layout[b])


def _check(plan: Plan, i: int, native: NativeOp) -> None:
    """The plan grants the workspace that the algorithm takes here."""
    code, columns = plan.instructions, plan.buffers
    ins, outs = ([TensorType(columns.shape[b], columns.dtype[b], columns.layout[b]) for b in buffers]
                 for buffers in (code.reads[i], code.writes[i]))
    granted = columns.bytes[code.workspace[i]] if code.workspace[i] >= 0 else 0
    known: dict[str, Algorithm] = {a.name: a for a in native.algorithms(code.params[i], ins, outs)}
    asked = known.get(code.algorithm[i])
    if asked is None or asked.workspace_bytes > granted:
        raise MXNetError(f"the plan of `{plan.program}` grants {code.name[i]} ({code.op[i]}) {granted} workspace bytes "
                         f"for {code.algorithm[i]!r}; this version's kernels offer "
                         f"{[(a.name, a.workspace_bytes) for a in known.values()]}: compile the plan again")
