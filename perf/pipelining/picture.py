"""The document's figure 1 as a picture: megabytes a second as bars, an SVG by itself.

Pure text, so that the same study draws the same bytes; whatever comes from a file is escaped. It
follows the reader's light or dark mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from perf.pipelining.bars import matrix
from perf.pipelining.plan import MIDDLE_US, MODES, Plan, title_of
from perf.pipelining.tables import median
from perf.studies.study import Outcome, StudyError
from perf.tables import one_line

WIDTH, LEFT, BAR, GAP, TOP = 760, 230, 16, 14, 54
NUMBERS: Final = 60  # to the right of the longest bar
STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .head { font-weight: 600 } .muted { fill: #59636e }
  .kafka { fill: #9a6700 } .stock { fill: #8c959f } .pipelined { fill: #0969da }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .muted { fill: #9198a1 }
    .kafka { fill: #d29922 } .stock { fill: #656c76 } .pipelined { fill: #4493f8 }
  }
"""


def drawn(outcome: Outcome, plan: Plan) -> str:
    """StudyError where the study has no table to draw."""
    at_us = MIDDLE_US if MIDDLE_US in plan.round_trips_us else plan.round_trips_us[0]
    groups = [
        (f"{mode}, {in_flight:,} in flight", list(_bars(outcome, plan, at_us, mode, in_flight)))
        for mode in MODES
        for in_flight in plan.in_flight
    ]
    most = max((value for _, bars in groups for _, value in bars), default=0.0)
    if "matrix" not in plan.sections or not most:
        raise StudyError("this study did not measure the first table, which is what is drawn")
    machine = {name: one_line(said) for name, said in outcome.machine.items()}
    return _svg(
        f"records of 10 KB, {at_us / 1000:g} ms between leader and follower, MB/s",
        f"{machine['when'][:10]}, {machine['cpus']} x {machine['model']}, commit"
        f" {machine['commit']}",
        groups,
        most,
    )


def _bars(
    outcome: Outcome, plan: Plan, at_us: int, mode: str, in_flight: int
) -> Iterator[tuple[str, float]]:
    for system in plan.systems:
        one = matrix(system, at_us, mode, in_flight)
        found = median(outcome, one, lambda block: block.megabytes_per_s)
        if found is not None:
            yield system, found


def _svg(
    title: str, said: str, groups: Sequence[tuple[str, Sequence[tuple[str, float]]]], most: float
) -> str:
    parts = []
    y = TOP
    for name, bars in groups:
        parts.append(_text(LEFT - 10, y + BAR * len(bars) / 2 + 4, name, anchor="end"))
        for system, value in bars:
            length = value / most * (WIDTH - LEFT - NUMBERS)
            parts.append(
                f'<rect class={quoteattr(system)} x="{LEFT}" y="{y}" width="{length:.1f}"'
                f' height="{BAR - 3}" rx="2">'
                f"<title>{escape(title_of(system))}, {escape(name)}</title></rect>"
            )
            text = f"{value:.0f}" if value >= 10 else f"{value:.1f}"
            parts.append(_text(LEFT + length + 6, y + 11, text, "muted"))
            y += BAR
        y += GAP
    head = [_text(10, 20, title, "head"), _text(10, y + 8, said, "muted"), *_legend(groups)]
    body = "\n".join([*head, *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 20}" role="img"'
        f" aria-label={quoteattr(title)}>\n<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def _legend(groups: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Iterator[str]:
    systems = dict.fromkeys(system for _, bars in groups for system, _ in bars)
    for place, system in enumerate(systems):
        x = LEFT + 170 * place
        yield f'<rect class={quoteattr(system)} x="{x}" y="33" width="12" height="12" rx="2"/>'
        yield _text(x + 18, 43, title_of(system))


def _text(x: float, y: float, words: str, kind: str = "", *, anchor: str = "start") -> str:
    css = f" class={quoteattr(kind)}" if kind else ""
    return f'<text{css} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
