"""A plot of a report as SVG inside the page: `draw(plot, prefix) -> Drawing`.

Matplotlib lays it out; what it writes is then made part of the page. Colours are drawn as marks
that become CSS variables, so that the same picture is light or dark as the reader's system is;
text stays text, in the page's font; ids get the plot's prefix, because a page has many plots; what
would name another document (metadata, doctype) is taken out. The same plot gives the same bytes:
no date, no random ids, Matplotlib's own font for the layout.

A plot is data from any writer: names are cut and cleaned, `$` is a letter and no
formula, numbers that no axis can hold are gaps, and there are bounds on series, names and points
with a note on the rest. No series makes this raise.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Any, Final

import matplotlib
from matplotlib import dates as _dates
from matplotlib import ticker
from matplotlib.backends import backend_svg
from matplotlib.figure import Figure

from spark_jobs.html.words import clean, short_number
from spark_jobs.report_model import Plot, PlotKind, Series

SERIES_MAX: Final = 16
NAMES_MAX: Final = 30  # places on the axis of bars and intervals
POINTS_MAX: Final = 1500  # of a line; more are drawn as least and greatest of each part
MARKED_POINTS_MAX: Final = 60  # a line of so few shows each point
NAME_CHARS_MAX: Final = 40
VALUE_MAX: Final = 1e15
VALUE_MIN: Final = 1e-12  # nearer to 0 a logarithmic axis has nothing to show
TIME_MS_MAX: Final = 253_370_764_800_000.0  # the year 9999

ALONE_DAYS: Final = 1 / 96  # a quarter of an hour on either side of a single point
MARGIN: Final = 0.015  # of a time axis, on either side
# Of ticks a year, month, day, hour, minute, second apart: the tick, and what the corner says.
TIMES: Final = ("%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M", "%H:%M:%S")
CORNERS: Final = ("", "", "%Y", "%Y-%m-%d", "%Y-%m-%d", "%Y-%m-%d")
FAR: Final = 20.0  # of the greatest to the least
DIGITS: Final = (4, 5, 6, 8, 10)  # of a tick, the first that tell all ticks apart

WIDTH_IN: Final = 5.4
HEIGHT_IN: Final = 2.4
ROW_IN: Final = 0.2  # of each bar that lies
UPRIGHT_MAX: Final = 8  # so many short names stand under upright bars

COLOURS: Final = 8
DASHES: Final = ((), (4.0, 1.6), (1.2, 1.4))
OPACITIES: Final = (1.0, 0.6, 0.35)
# These keep their colour in every plot of a page.
FIXED: Final = {"kbroker": 0, "kafka": 1, "apache kafka": 1, "limit": 2}

_MARKS: Final = {f"#0a0b{n:02x}": f"var(--c{n})" for n in range(COLOURS)} | {
    "#0a0c01": "var(--ink)",
    "#0a0c02": "var(--muted)",
    "#0a0c03": "var(--grid)",
}
# Parts of Matplotlib that have no types.
dates: Any = _dates
Canvas: Any = backend_svg.FigureCanvasSVG

INK, MUTED, GRID = (mark for mark in _MARKS if mark.startswith("#0a0c"))

_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kbroker",
    "text.parse_math": False,
    "axes.unicode_minus": False,
    "axes.formatter.use_mathtext": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 8.5,
    "path.simplify": True,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Key:
    """One entry of a plot's legend."""

    name: str
    colour: int  # of --c0, --c1 ...
    dash: tuple[float, ...]  # of a line, in points; () is solid
    opacity: float = 1.0  # of bars, which have no dash


@dataclass(frozen=True)
class Drawing:
    """A plot as the page shows it; an empty `svg` means that there was nothing to draw."""

    svg: str
    legend: tuple[Key, ...]
    notes: tuple[str, ...]


def draw(plot: Plot, prefix: str) -> Drawing:
    """The plot as SVG for inside HTML; `prefix` starts each of its ids."""
    notes: list[str] = []
    series = _bounded(plot, notes)
    if not any(_finite(each.y) for each in series):
        return Drawing("", (), ())
    keys = _keys(series, plot.kind)
    if plot.kind == "intervals" and _far(series):
        plot = replace(plot, log_y=True)
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # Letters that the layout's font lacks: the page's font has them, or shows its own box.
        warnings.simplefilter("ignore")
        if plot.kind == "line":
            figure = _lines(plot, series, keys, notes)
        else:
            figure = _categories(plot, series, keys, notes)
        svg = _written(figure)
    return Drawing(_inlined(svg, prefix), keys, tuple(notes))


# -- what is drawn: bounded, and only what an axis can hold


def _bounded(plot: Plot, notes: list[str]) -> list[Series]:
    if len(plot.series) > SERIES_MAX:
        notes.append(f"{len(plot.series) - SERIES_MAX} more series are in the JSON.")
    return [_cleaned(each, plot) for each in plot.series[:SERIES_MAX]]


def _cleaned(series: Series, plot: Plot) -> Series:
    y = tuple(_drawable(value, plot.log_y) for value in series.y)
    low = tuple(_drawable(value, plot.log_y) for value in series.low)
    high = tuple(_drawable(value, plot.log_y) for value in series.high)
    if plot.kind != "line":
        return Series(clean(series.name, NAME_CHARS_MAX), series.x, y, low, high)
    x = tuple(_on_axis(value, plot) for value in series.x)
    y = tuple(b if math.isfinite(a) else math.nan for a, b in zip(x, y, strict=True))
    return Series(clean(series.name, NAME_CHARS_MAX), x, y, low, high)


def _on_axis(x: float | str, plot: Plot) -> float:
    """A place on the x axis of a line; NaN where there is none."""
    if isinstance(x, str):
        return math.nan
    return _time(x) if plot.x_is_time else _drawable(x, plot.log_x)


def _drawable(value: float, log: bool) -> float:
    """The value, or NaN where no axis has a place for it."""
    if not math.isfinite(value) or abs(value) > VALUE_MAX:
        return math.nan
    if log and value < VALUE_MIN:
        return math.nan
    return value if abs(value) >= VALUE_MIN else 0.0


def _time(value: float) -> float:
    """Ms since 1970 as days since 1970, which is how Matplotlib counts."""
    return value / 86_400_000 if 0 <= value <= TIME_MS_MAX else math.nan


def _far(series: Sequence[Series]) -> bool:
    """Whether values reach over FAR and all have a logarithm: one long interval hides no other."""
    every = [v for each in series for v in _finite((*each.y, *each.low, *each.high))]
    return min(every) >= VALUE_MIN and max(every) / min(every) > FAR


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _keys(series: Sequence[Series], kind: PlotKind) -> tuple[Key, ...]:
    """Colours by the first word of a name where that has one of its own, the others in order."""
    families = [_family(each.name) for each in series]
    free = [n for n in range(COLOURS) if n not in families] or list(range(COLOURS))
    keys = []
    used: Counter[int] = Counter()
    given = 0
    for each, family in zip(series, families, strict=True):
        colour = free[given % len(free)] if family is None else family
        given += family is None
        nth = min(used[colour], len(DASHES) - 1)
        used[colour] += 1
        if kind == "line":
            keys.append(Key(each.name, colour, DASHES[nth]))
        else:
            keys.append(Key(each.name, colour, (), OPACITIES[nth]))
    return tuple(keys)


def _family(name: str) -> int | None:
    """The colour of "kbroker", "kafka p99" and such."""
    small = name.lower()
    found = (
        colour for word, colour in FIXED.items() if small == word or small.startswith(word + " ")
    )
    return next(found, None)


# -- the kinds


def _lines(plot: Plot, series: Sequence[Series], keys: Sequence[Key], notes: list[str]) -> Figure:
    figure, axes = _axes(HEIGHT_IN)
    for each, key in zip(series, keys, strict=True):
        x, y, low, high = _thinned(each)
        colour = _colour(key)
        axes.plot(
            x,
            y,
            color=colour,
            linewidth=1.3,
            dashes=key.dash if key.dash else (None, None),
            marker="o" if len(x) <= MARKED_POINTS_MAX else "",
            markersize=5.0 if len(x) == 1 else 2.4,
            markeredgewidth=0,
        )
        if (alone := _alone(y)) and len(x) > MARKED_POINTS_MAX:  # no line leads to them
            axes.plot([x[n] for n in alone], [y[n] for n in alone], color=colour, linestyle="",
                      marker="o", markersize=2.4, markeredgewidth=0)  # fmt: skip
        if low:
            axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)
    _scale(axes.xaxis, plot.log_x and not plot.x_is_time)  # time has no logarithm
    _scale(axes.yaxis, plot.log_y)
    if plot.x_is_time:
        locator = dates.AutoDateLocator(tz=UTC, minticks=3, maxticks=7)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(
            locator, tz=UTC, formats=TIMES, zero_formats=TIMES, offset_formats=CORNERS
        ))  # fmt: skip
        axes.xaxis.get_offset_text().set_color(MUTED)
        first, last = _ends(series)
        # Of one moment Matplotlib would show the years around it.
        around = ALONE_DAYS if first == last else (last - first) * MARGIN
        axes.set_xlim(first - around, last + around)
    axes.set_xlabel(clean(plot.x, NAME_CHARS_MAX * 2))
    axes.set_ylabel(clean(plot.y, NAME_CHARS_MAX * 2))
    if not plot.log_y:
        _from_zero(axes, [v for each in series for v in _finite((*each.y, *each.low, *each.high))])
    _mark(axes, plot, upright=True, notes=notes)
    return figure


def _alone(y: Sequence[float]) -> list[int]:
    """Values between two gaps."""
    there = [False, *(math.isfinite(value) for value in y), False]
    return [n for n in range(len(y)) if there[n : n + 3] == [False, True, False]]


def _ends(series: Sequence[Series]) -> tuple[float, float]:
    """The first and the last moment that a line is about, if only to say that it has a gap."""
    places = _finite(x for each in series for x in each.x if isinstance(x, float))
    return min(places, default=0.0), max(places, default=0.0)


def _thinned(
    series: Series,
) -> tuple[Sequence[Any], Sequence[float], Sequence[float], Sequence[float]]:
    """At most POINTS_MAX points: of each part the least, the greatest and a gap, in their order."""
    total = len(series.y)
    if total <= POINTS_MAX:
        return series.x, series.y, series.low, series.high
    part = math.ceil(total / (POINTS_MAX // 3))
    kept: list[int] = []
    for start in range(0, total, part):
        here = range(start, min(start + part, total))
        places = [n for n in here if math.isfinite(series.y[n])]
        chosen = {n for n in here if math.isnan(series.y[n])}
        chosen = {min(chosen)} if chosen else set()
        if places:
            chosen |= {min(places, key=series.y.__getitem__), max(places, key=series.y.__getitem__)}
        kept.extend(sorted(chosen))

    def take(values: Sequence[Any]) -> list[Any]:
        return [values[n] for n in kept] if values else []

    return take(series.x), take(series.y), take(series.low), take(series.high)


def _categories(
    plot: Plot, series: Sequence[Series], keys: Sequence[Key], notes: list[str]
) -> Figure:
    """Bars, or points with intervals, at names; they lie where the names would not fit upright."""
    every = list(dict.fromkeys(_name(x) for each in series for x in each.x))
    if len(every) > NAMES_MAX:
        notes.append(f"{len(every) - NAMES_MAX} more are in the JSON.")
    place = {name: float(n) for n, name in enumerate(every[:NAMES_MAX])}
    upright = (
        plot.kind == "bars"
        and len(place) <= UPRIGHT_MAX
        and max(map(len, place)) * len(place) <= 80
    )
    rows = len(place) * max(1, len(series) * 0.75)
    figure, axes = _axes(HEIGHT_IN if upright else max(1.3, 0.75 + ROW_IN * min(rows, 60)))
    values = _scale_of_values(axes, plot, upright)
    step = 0.8 / len(series)
    for number, (each, key) in enumerate(zip(series, keys, strict=True)):
        found = [n for n, x in enumerate(each.x) if _name(x) in place and math.isfinite(each.y[n])]
        at = [place[_name(each.x[n])] - 0.4 + step * (number + 0.5) for n in found]
        y = [each.y[n] for n in found]
        errors = _errors(each, found)
        if plot.kind == "bars":
            _bars(axes, upright, at, y, step * 0.92, errors, key)
        else:
            axes.errorbar(
                y, at, xerr=errors, fmt="o", color=_colour(key), markersize=4, linewidth=1.4,
                capsize=2.5, alpha=key.opacity,
            )  # fmt: skip
    names = axes.xaxis if upright else axes.yaxis
    names.set_ticks(list(place.values()), labels=[clean(n, NAME_CHARS_MAX) for n in place])
    names.set_tick_params(length=0)
    names.grid(False)
    if not upright:
        axes.set_ylim(len(place) - 0.5, -0.5)
    names.set_label_text(clean(plot.x, NAME_CHARS_MAX * 2))
    values.set_label_text(clean(plot.y, NAME_CHARS_MAX * 2))
    _mark(axes, plot, upright=upright, notes=notes)
    return figure


def _scale_of_values(axes: Any, plot: Plot, upright: bool) -> Any:
    values = axes.yaxis if upright else axes.xaxis
    _scale(values, plot.log_y)
    return values


def _bars(
    axes: Any,
    upright: bool,
    at: list[float],
    y: list[float],
    width: float,
    errors: list[list[float]] | None,
    key: Key,
) -> None:
    colour = _colour(key)
    whiskers = {"ecolor": INK, "elinewidth": 0.9, "capsize": 2.0}
    if upright:
        axes.bar(
            at, y, width=width, color=colour, alpha=key.opacity, yerr=errors, error_kw=whiskers
        )
    else:
        axes.barh(
            at, y, height=width, color=colour, alpha=key.opacity, xerr=errors, error_kw=whiskers
        )


def _errors(series: Series, found: Sequence[int]) -> list[list[float]] | None:
    """Distances from each y to the ends of its interval; None without intervals."""
    if not series.low:
        return None

    def distance(below: float, above: float) -> float:
        gap = above - below
        return gap if math.isfinite(gap) and gap > 0 else 0.0

    return [
        [distance(series.low[n], series.y[n]) for n in found],
        [distance(series.y[n], series.high[n]) for n in found],
    ]


# -- axes


def _axes(height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH_IN, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    return figure, axes


def _scale(axis: Any, log: bool) -> None:
    if log:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        axis.set_minor_formatter(ticker.NullFormatter())
    axis.set_major_formatter(_Short())


class _Short(ticker.Formatter):
    """Short numbers, of as many digits as tell the ticks of an axis apart."""

    def set_locs(self, locs: Any) -> None:
        self.locs = list(locs)
        self.digits = next((d for d in DIGITS if self._apart(d)), DIGITS[-1])

    def _apart(self, digits: int) -> bool:
        return len({short_number(place, digits) for place in self.locs}) == len(set(self.locs))

    def __call__(self, value: float, place: int | None = None) -> str:
        return short_number(value, getattr(self, "digits", DIGITS[0]))


def _from_zero(axes: Any, values: Sequence[float]) -> None:
    """Lines of values that cannot be negative start at 0, unless that would flatten them."""
    if axes.get_ylabel() == "%" and values and 0 <= min(values) <= max(values) <= 100:
        axes.set_ylim(0, 102)  # a share is seen as one of the whole
        return
    if values and min(values) >= 0 and min(values) <= max(values) * 0.6:
        axes.set_ylim(bottom=0)


def _mark(axes: Any, plot: Plot, *, upright: bool, notes: list[str]) -> None:
    """The plot's reference, where it is near enough not to flatten everything else."""
    value = plot.reference
    if value is None or math.isnan(_drawable(value, plot.log_y)):
        return
    low, high = axes.get_ylim() if upright else axes.get_xlim()
    reach = 0 if plot.log_y else high - low
    near = low / 20 <= value <= high * 20 if plot.log_y else low - reach <= value <= high + reach
    if not near:
        side = "above" if value > high else "below"
        notes.append(f"The mark at {short_number(value)} lies {side} what is drawn.")
        return
    line = axes.axhline if upright else axes.axvline
    line(value, color=INK, linewidth=0.9, dashes=(3, 2), zorder=1.5)


def _name(x: float | str) -> str:
    return x if isinstance(x, str) else short_number(x)


def _colour(key: Key) -> str:
    return f"#0a0b{key.colour:02x}"


# -- SVG


def _written(figure: Figure) -> str:
    out = io.BytesIO()
    Canvas(figure).print_svg(out, metadata={"Date": None, "Creator": None})
    return out.getvalue().decode("utf-8")


_OUTSIDE: Final = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", re.DOTALL)
_ID: Final = re.compile(r'(\bid="|href="#|url\(#)')
_OPEN: Final = re.compile(r"<svg [^>]*>", re.DOTALL)
_VIEW: Final = re.compile(r'viewBox="([\d. -]+)"')
_FONT: Final = re.compile(r" font-family: [^;\"]*;")


def _inlined(svg: str, prefix: str) -> str:
    """What Matplotlib wrote, as part of a page."""
    body = _OUTSIDE.sub("", svg[svg.index("<svg") :]).replace("xlink:href", "href")
    view = _VIEW.search(body)
    frame = view[1] if view else "0 0 400 200"
    head = f'<svg viewBox="{frame}" role="img" aria-labelledby="{prefix}caption">'
    body = _OPEN.sub(lambda _: head, body, count=1)
    inner = body[len(head) :]
    inner = _ID.sub(lambda match: match[1] + prefix, inner)
    inner = _FONT.sub("", inner)
    for mark, variable in _MARKS.items():
        inner = inner.replace(mark, variable)
    return head + inner.strip()
