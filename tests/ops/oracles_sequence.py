"""Oracles of losses over sequences."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .oracles import oracle

NOTHING = -1e30
"""The logarithm of a probability of 0, of which autograd makes no NaN."""


def sizes(p: Any, data: Tensor, label: Tensor, lengths: tuple[Tensor, ...]) -> tuple[int, Tensor, Tensor]:
    """(blank, frames, classes) of each sequence."""
    given, (time, batch, classes) = iter(lengths), data.shape
    frames = next(given).long() if p.use_data_lengths else torch.full((batch,), time)
    padding = label <= 0 if p.blank_label == "first" else label < 0
    counts = (padding.long().cumsum(1) == 0).sum(1)
    if p.use_label_lengths:
        counts = torch.minimum(counts, next(given).long())
    return 0 if p.blank_label == "first" else classes - 1, frames, counts


@oracle("CTCLoss")
def ctc(p: Any, data: Tensor, label: Tensor, *lengths: Tensor) -> list[Tensor]:
    blank, frames, counts = sizes(p, data, label, lengths)
    losses = F.ctc_loss(data.log_softmax(2), label.long().clamp(min=0), frames, counts, blank, "none", True)
    return [torch.where(frames == 0, 0, losses)]


@oracle("_ctc_loss")
def ctc_of_logs(p: Any, logs: Tensor, label: Tensor, *lengths: Tensor) -> list[Tensor]:
    """State by state; F.ctc_loss has right gradients only behind a softmax."""
    blank, frames, counts = sizes(p, logs, label, lengths)
    alphas = torch.stack([alphas_of(logs[:, n], label[n], blank, int(frames[n]), int(c)) for n, c in enumerate(counts)],
                         1)
    losses = torch.stack([torch.logsumexp(alphas[-1, n, max(2 * c - 1, 0):2 * c + 1], 0) for n, c in enumerate(counts)])
    losses = torch.where((frames == 0) | (losses < NOTHING / 2), 0, -losses)
    return [losses, torch.where(alphas < NOTHING / 2, -torch.inf, alphas)]


def alphas_of(logs: Tensor, label: Tensor, blank: int, frames: int, count: int) -> Tensor:
    """Logarithms of the probabilities of the states of one label at each frame."""
    classes = [blank] * (2 * len(label) + 1)
    classes[1:2 * count:2] = map(int, label[:count])
    rows: list[list[Tensor]] = []
    nothing = torch.tensor(NOTHING, dtype=logs.dtype)
    for t, frame in enumerate(logs):
        if t >= max(frames, 1):
            rows.append(rows[-1])
            continue
        row = []
        for s, c in enumerate(classes):
            ways = rows[-1][max(s - 1, 0):s + 1] if t else [torch.zeros_like(nothing) if s < 2 else nothing]
            if t and s % 2 and 3 <= s < 2 * count and c != classes[s - 2]:
                ways = [*ways, rows[-1][s - 2]]
            row.append(torch.logsumexp(torch.stack(ways), 0) + frame[c])
        rows.append(row)
    return torch.stack([torch.stack(row) for row in rows])
