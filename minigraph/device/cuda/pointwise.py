"""The launch that most elementwise ops share: kernel(inputs..., output, elements, scalars...)."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, int64, kernels_for, pointer
from .operands import require_float32

Arguments = Sequence[tuple[str, Any]]
WHOLE = ("int32", "int64")
"""Dtypes of whole numbers that some kernels take."""
PER_THREAD = 4
"""Elements of a thread's turn: one float4."""


class Map(KernelOp):
    """output[i] = f(inputs[i]...): `name` is the op's and `kernel(p)` the kernel's."""

    name: ClassVar[str]

    def kernel(self, p: Any) -> str:
        """The kernel's name."""
        raise NotImplementedError(self.name)

    def scalars(self, p: Any) -> Arguments:
        """Kernel arguments behind the number of elements."""
        return ()

    def whole(self, p: Any) -> Sequence[int] | None:
        """The same for the kernels of whole numbers, the ones called as `kernel` but for the dtype; None without."""
        return None

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        kind, whole = ins[0].dtype.name, None
        if kind in WHOLE and all(each.dtype == ins[0].dtype for each in (*ins, *outs)):
            whole = self.whole(p)
        if whole is None:
            require_float32(self.name, [*ins, *outs])
        if outs[0].size == 0:
            return ()
        kernel = self.kernel(p) if whole is None else f"{self.kernel(p).removesuffix('float32')}{kind}"
        scalars = self.scalars(p) if whole is None else map(int64, whole)
        args = (*map(pointer, ins), pointer(outs[0]), int64(outs[0].size), *scalars)
        return (Launch(kernel, flat_grid(outs[0].size, PER_THREAD), (BLOCK, 1, 1), args),)


def define(name: str, kernel: str | Callable[[Any], str], scalars: Callable[[Any], Arguments] = lambda p: (),
           whole: Callable[[Any], Sequence[int] | None] = lambda p: None) -> None:
    """Make the op `name` a Map to `kernel`, a name or a function of the op's parameters; `whole` is as Map has it."""
    @kernels_for(name)
    class Defined(Map):
        def kernel(self, p: Any) -> str:
            return kernel if isinstance(kernel, str) else kernel(p)

        def scalars(self, p: Any) -> Arguments:
            return scalars(p)

        def whole(self, p: Any) -> Sequence[int] | None:
            return whole(p)

    Defined.name = name
