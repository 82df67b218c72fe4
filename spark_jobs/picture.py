"""A section of a report as one picture: its title, what it says, and its plots, as an SVG.

    python -m spark_jobs.picture build/report/report.json pipelining --out docs/report.svg

For pages that cannot hold HTML, such as a README. The same report draws the same bytes; light or
dark as the reader's system is. Reads the report's JSON alone; no Spark.

Exit codes: 0 done; 1 failed, such as a section without a plot; 2 usage.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape, quoteattr

if __package__ in (None, ""):  # run as a file by spark-submit
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from spark_jobs.errors import EXIT_FAILED
from spark_jobs.html import theme
from spark_jobs.html.plots import Drawing, draw
from spark_jobs.html.words import clean
from spark_jobs.report_model import Report, ReportError, Section
from spark_jobs.rows import load

COLUMNS: Final = 2
WIDTH, GAP, LINE = 460.0, 20.0, 18.0  # of a plot; around it; of a line of text
WORDS_CHARS_MAX: Final = 125
KEYS_A_LINE: Final = 2
ERROR_CHARS_MAX: Final = 400
PAGE: Final = COLUMNS * WIDTH + (COLUMNS + 1) * GAP
_VIEW: Final = re.compile(r'^<svg viewBox="0 0 ([\d.]+) ([\d.]+)"')
STYLE: Final = f"""
  svg {{ {theme.css(theme.LIGHT)} }}
  @media (prefers-color-scheme: dark) {{ svg {{ {theme.css(theme.DARK)} }} }}
  text {{ font: 12px system-ui, sans-serif; fill: var(--ink) }}
  .title {{ font-size: 17px; font-weight: 600 }} .muted {{ fill: var(--muted) }}
  .name {{ font-size: 13px; font-weight: 600 }}
"""


def picture(section: Section) -> str:
    """ReportError where there is nothing to draw."""
    y = GAP + LINE
    parts = [_text(GAP, y, clean(section.title), "title")]
    for line in (part for words in section.words for part in textwrap.wrap(words, WORDS_CHARS_MAX)):
        y += LINE
        parts.append(_text(GAP, y, clean(line), "muted"))
    drawn = [
        (clean(plot.title), drawing)
        for number, plot in enumerate(section.plots)
        if (drawing := draw(plot, f"p{number}-")).svg
    ]
    if not drawn:
        raise ReportError(f"the section {section.key} has no plot")
    for first in range(0, len(drawn), COLUMNS):
        y += GAP
        bottoms = []
        for column, (title, drawing) in enumerate(drawn[first : first + COLUMNS]):
            x = GAP + column * (WIDTH + GAP)
            made, height = _plot(x, y, title, drawing)
            parts += made
            bottoms.append(y + height)
        y = max(bottoms)
    height = y + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE:g} {height:.0f}" role="img"'
        f" aria-label={quoteattr(clean(section.title))}>\n<style>{STYLE}</style>\n"
        f'<rect width="100%" height="100%" fill="var(--page)"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _plot(x: float, y: float, title: str, drawing: Drawing) -> tuple[list[str], float]:
    """A plot with its title and legend, and how high it is."""
    made = [_text(x, y + LINE, title, "name", f"{_prefix(drawing)}caption")]
    height = LINE
    if len(drawing.legend) > 1:
        for number, key in enumerate(drawing.legend):
            at = x + number % KEYS_A_LINE * WIDTH / KEYS_A_LINE
            height += LINE if number % KEYS_A_LINE == 0 else 0.0
            made.append(
                f'<rect x="{at:.1f}" y="{y + height - 9:.1f}" width="12" height="10"'
                f' fill="var(--c{key.colour})" fill-opacity="{key.opacity:g}"/>'
            )
            made.append(_text(at + 18, y + height, key.name))
    view = _VIEW.match(drawing.svg)
    wide, high = map(float, view.groups()) if view else (WIDTH, WIDTH / 2)
    drawn = high * WIDTH / wide
    place = f'<svg x="{x:.1f}" y="{y + height + 6:.1f}" width="{WIDTH:g}" height="{drawn:.1f}" '
    made.append(place + drawing.svg.removeprefix("<svg "))
    return made, height + 6 + drawn


def _prefix(drawing: Drawing) -> str:
    found = re.search(r'aria-labelledby="([^"]*)caption"', drawing.svg)
    return found[1] if found else ""


def _text(x: float, y: float, words: str, kind: str = "", name: str = "") -> str:
    attributes = "".join(
        f" {key}={quoteattr(value)}" for key, value in (("class", kind), ("id", name)) if value
    )
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(words)}</text>'


def chosen(report: Report, key: str) -> Section:
    """ReportError where it has no such section."""
    for section in report.sections:
        if section.key == key:
            return section
    keys = ", ".join(section.key for section in report.sections)
    raise ReportError(f"the report has no section {key}: there are {keys}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m spark_jobs.picture", description="A section of a report as an SVG."
    )
    parser.add_argument("report", metavar="REPORT.json", type=Path)
    parser.add_argument("section", metavar="SECTION", help="its key, such as pipelining")
    parser.add_argument("--out", metavar="FILE", type=Path, help="default: standard output")
    options = parser.parse_args(argv)
    try:
        svg = picture(chosen(load(options.report), options.section))
        if options.out is None:
            sys.stdout.write(svg)
        else:
            options.out.write_text(svg, encoding="utf-8")
    except (ReportError, OSError) as error:
        print(f"error: {clean(str(error), ERROR_CHARS_MAX)}", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
