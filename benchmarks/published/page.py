"""The page that shows what was measured, and the summary of what holds and what does not."""
from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from .bench import AUTO, FULL, FULL_NODES, LARGEST_NODES, SAME, SLICED_NODES, Ours, Row
from .tables import GIB, Figure

GB = 10**9
HEAD = ("`policy: bytes, xT; **n**, planned bytes`: the least bytes at the published size; modelled time there, of the "
        "fastest candidate within the capacity, over that of the plain order in ample memory; the largest size within "
        "the capacity; and the bytes of its packed and verified plan. `(above)`: more than the capacity. Policies are "
        "asked as under a budget of the capacity. `auto` weighs candidates of the whole graph and, where the plain "
        f"order does not fit, in slices of the batch; in graphs of more than {SLICED_NODES} nodes those in slices only "
        "where the others do not reach what was published or are behind the policy, so that bytes and time there are "
        f"upper bounds. `full` is its full search, asked where the default one is behind (up to {FULL_NODES} nodes). "
        f"Its largest size is looked for in graphs of up to {LARGEST_NODES} nodes.")


def format_row(row: Row) -> str:
    """A line of the markdown table."""
    figure = row.figure
    published = f"{figure.published}" + (f" in {figure.published_bytes / GB:.1f} GB" if figure.published_bytes else "")
    cells = [_form(row.of(figure.policy), named=True), _form(row.of(AUTO))]
    full = row.of(FULL)
    if full is not None:
        cells[1] += f"; full: {_form(full)}"
    return f"| {figure.network} | {figure.system} | {published} | {' | '.join(cells)} |"


def _form(ours: Ours | None, named: bool = False) -> str:
    if ours is None:
        return "-"
    name = f"{ours.policy}: " if named else ""
    text = f"{name}{ours.bytes / GB:.2f} GB{'' if ours.fits else ' (above)'}"
    if ours.slower is not None:
        text += f", x{ours.slower:.2f}"
    if ours.largest is not None:
        packed = "" if ours.planned_bytes is None else f", planned {ours.planned_bytes / GB:.2f} GB"
        text += f"; **{ours.largest}**{packed}"
    return text


def markdown(rows: Sequence[Row], lines: Sequence[str], seconds: float, quick: bool) -> str:
    """The figures as a page."""
    page = ["# Published figures beside minigraph's policies", "",
            f"{time.strftime('%Y-%m-%d', time.gmtime())}, {seconds / 60:.0f} minutes of "
            f"processor time{', the quick form' if quick else ''}. By the machine models; nothing was run on these "
            "machines. Copies go at the link's own rate, 15.75 GB/s for PCIe 3.0; the papers measured 8 to 12.8.", "",
            "## What holds", "", *claims(rows), "",
            "## Reproduced from the papers' own rules", "", *lines, "", "## By policy", "", HEAD, ""]
    for table in dict.fromkeys(row.figure.table for row in rows):
        of_table = [row for row in rows if row.figure.table == table]
        capacity = of_table[0].figure.capacity_bytes
        page += [f"### {table}", "", f"Capacity {capacity / GIB:.2f} GiB, times of a {of_table[0].figure.machine}.", "",
                 f"| network | system | published {of_table[0].figure.by} | its policy here | auto |",
                 "| --- | --- | --- | --- | --- |", *map(format_row, of_table), ""]
    return "\n".join(page)


def claims(rows: Sequence[Row]) -> list[str]:
    """A markdown line for each claim, with the rows where it does not hold."""
    found = summary(rows)
    return [f"- Of {found['by_their_policy']} figures the policy of that name reaches {found['reached']}; missed: "
            f"{_listed(found['missed'])}.",
            f"- Of all {found['figures']} figures `auto` reaches {found['reached_by_auto']}; below what was published: "
            f"{_listed(found['missed_by_auto'])}.",
            f"- `auto` (default search) is slower than the figure's policy in: {_listed(found['auto_slower'])}.",
            f"- `auto` (default search) needs more bytes at the least than it in: {_listed(found['auto_larger'])}.",
            f"- With the full search it is slower, or needs more bytes, in: {_listed(found['full_behind'])}.",
            f"- Of {found['sizes_compared']} largest sizes that were looked for by both, `auto`'s is less in: "
            f"{_listed(found['auto_smaller'])}."]


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names) if names else "none"


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures to watch from one version to the next."""
    own = [(row.figure, o) for row in rows if (o := row.of(row.figure.policy)) is not None]
    pairs = list(_beside(rows))
    sizes = [(f, o, a) for f, o, a, _ in pairs if o.largest is not None and a.largest is not None]
    missed = [_name(f) for f, o in own if not o.fits]
    return {"figures": len(rows), "by_their_policy": len(own), "reached": len(own) - len(missed), "missed": missed,
            "reached_by_auto": sum(_best(row).fits for row in rows),
            "missed_by_auto": [f"{_name(row.figure)} ({_best(row).bytes / GB:.2f} GB)"
                               for row in rows if not _best(row).fits],
            "auto_slower": [f"{_name(f)} ({_ratio(a, o)})" for f, o, a, _ in pairs if _is_slower(a, o)],
            "auto_larger": [f"{_name(f)} ({a.bytes / o.bytes:.3f})" for f, o, a, _ in pairs if a.bytes > o.bytes],
            "full_behind": [_name(f) for f, o, _, full in pairs if full is not None and full.behind(o)],
            "sizes_compared": len(sizes),
            "auto_smaller": [f"{_name(f)} ({a.largest} for {o.largest})" for f, o, a in sizes
                             if (a.largest or 0) < (o.largest or 0)]}


def _beside(rows: Sequence[Row]) -> Iterator[tuple[Figure, Ours, Ours, Ours | None]]:
    """Figures with a policy: what that came to, `auto`, and the full search where it was asked."""
    for row in rows:
        own, auto = row.of(row.figure.policy), row.of(AUTO)
        if own is not None and auto is not None:
            yield row.figure, own, auto, row.of(FULL)


def _best(row: Row) -> Ours:
    """`auto`'s full search where it was asked, else its default one."""
    found = row.of(FULL) or row.of(AUTO)
    assert found is not None
    return found


def _is_slower(auto: Ours, own: Ours) -> bool:
    return own.slower is not None and (auto.slower is None or auto.slower > own.slower * SAME)


def _ratio(auto: Ours, own: Ours) -> str:
    assert own.slower is not None
    return "does not fit" if auto.slower is None else f"{auto.slower / own.slower:.3f}"


def _name(figure: Figure) -> str:
    return f"{figure.table.partition(':')[0].partition(', ')[0]}: {figure.system}, {figure.network}"
