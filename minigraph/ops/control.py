"""The control buffer: the scalars of a step, in one small float32 tensor that is filled before the step runs.

Kernels read it through a pointer, so neither plan nor captured graph changes with a schedule. The first words are
integers kept as their bit patterns.

    word 0, 1   seed, low and high 32 bits          word 5   clip_gradient (by value; < 0 is off)
    word 2      step number (modulo 2**32)          word 6   clip_global_norm (<= 0 is off)
    word 3      loss scale (0 without one)          word 7   number of the update (Nadam, FTML, LAMB), momentum (LARS)
    word 4      rescale_grad                        then, for parameter i: lr at 8 + 2 i, wd at 9 + 2 i
"""
from __future__ import annotations

import numpy as np

from ..base import PartialShape
from .op import ShapeError, format_shape

SEED, STEP, LOSS_SCALE, RESCALE, CLIP, GLOBAL_NORM, UPDATE_COUNT, FIRST_RATE = 0, 2, 3, 4, 5, 6, 7, 8

MOMENTUM = UPDATE_COUNT

LAST_STEP = 2**32 - 1
"""The last number of a step before they begin again."""


def control_size(num_parameters: int) -> int:
    """Words of the control buffer for a number of updated parameters."""
    return FIRST_RATE + 2 * num_parameters


def lr_word(index: int) -> int:
    """The word that holds the learning rate of parameter `index`; its weight decay is in the next one."""
    return FIRST_RATE + 2 * index


def scale_words(loss_scale: float) -> np.ndarray:
    """The scalars of a program that has no updates: a loss scale, and else zeros."""
    words = np.zeros(control_size(0), np.float32)
    words[LOSS_SCALE] = loss_scale
    return words


def with_words(control: PartialShape, words: int = FIRST_RATE) -> PartialShape:
    """The shape of the control buffer; ShapeError where it is no vector of at least so many words."""
    if control is not None and (len(control) != 1 or (control[0] is not None and control[0] < words)):
        raise ShapeError(f"the control buffer has the shape {format_shape(control)}; it must have {words} words or "
                         f"more")
    return control


def set_key(control: np.ndarray, seed: int, step: int) -> None:
    """Write the random key of a step."""
    control[SEED:STEP + 1].view(np.uint32)[:] = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF, step & 0xFFFFFFFF


def get_key(control: np.ndarray) -> tuple[int, int]:
    """(seed, step) of a step."""
    low, high, step = (int(word) for word in control[SEED:STEP + 1].view(np.uint32))
    return low | high << 32, step
