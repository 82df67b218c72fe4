"""Walks as text, as JSON, and as the generated part of docs/walk.md. Pure functions."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from perf.tables import aligned
from perf.walk.walk import Walk

BEGIN: Final = "<!-- written by make walk -->"
COLUMNS: Final = ("units", "compiled", "Python", "threads", "steps", "of them back")
PAIRS_SHOWN: Final = 6
PAGE_CHARS: Final = 120
_OF_UNIT: Final = ("name", "compiled", "thread", "calls")


def to_json(walks: Sequence[Walk], machine: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "commit": machine["commit"],
        "when": machine["when"],
        "walks": [walk.to_json() for walk in walks],
    }


def kept(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the page is drawn from."""
    walks = [
        {
            **{name: walk[name] for name in ("key", "title", "threads", "steps", "back", "pairs")},
            "units": [{name: unit[name] for name in _OF_UNIT} for unit in walk["units"]],
        }
        for walk in data["walks"]
    ]
    return {**data, "walks": walks}


def written(data: Mapping[str, Any]) -> str:
    """As a file, a line for each walk."""
    walks = ",\n".join(json.dumps(walk, separators=(",", ":")) for walk in data["walks"])
    about = json.dumps({name: data[name] for name in ("commit", "when")})
    return f'{about[:-1]}, "walks": [\n{walks}\n]}}\n'


def to_text(data: Mapping[str, Any]) -> str:
    """For people: each walk unit by unit, then all of them in a table."""
    lines: list[str] = []
    for walk in data["walks"]:
        lines += ["", walk["title"], ""]
        rows = [
            [
                f"{number:>2} {unit['name']}",
                "C" if unit["compiled"] else "Python",
                unit["thread"],
                str(sum(path.count(unit["name"]) for path in walk["paths"])),
                str(unit["calls"]),
            ]
            for number, unit in enumerate(walk["units"], start=1)
        ]
        lines += aligned(["   unit", "", "thread", "entered", "calls"], rows)
        pairs = walk["pairs"][:PAIRS_SHOWN]
        lines += [f"{one} and {other}: {steps} steps" for one, other, steps in pairs]
    return "\n".join([*lines, "", *summary(data)])


def summary(data: Mapping[str, Any]) -> list[str]:
    return aligned(
        ["request", *COLUMNS], [[walk["title"], *_numbers(walk)] for walk in data["walks"]]
    )


def _numbers(walk: Mapping[str, Any]) -> list[str]:
    compiled = sum(unit["compiled"] for unit in walk["units"])
    numbers = (
        len(walk["units"]), compiled, len(walk["units"]) - compiled, walk["threads"],
        walk["steps"], walk["back"],
    )  # fmt: skip
    return list(map(str, numbers))


def to_page(data: Mapping[str, Any]) -> str:
    """The generated part of docs/walk.md."""
    lines = [
        f"Commit {data['commit']}, {data['when']}.",
        "",
        f"| request | {' | '.join(COLUMNS)} |",
        f"|---|{'---:|' * len(COLUMNS)}",
        *(f"| {walk['title']} | {' | '.join(_numbers(walk))} |" for walk in data["walks"]),
    ]
    for walk in data["walks"]:
        units = ", ".join(f"`{unit['name']}`" for unit in walk["units"])
        lines += ["", *_wrapped(f"**{walk['title']}**: {units}.")]
        if pairs := walk["pairs"][:PAIRS_SHOWN]:
            said = (f"`{one}` and `{other}` {steps}" for one, other, steps in pairs)
            lines += ["", *_wrapped(f"Steps between: {', '.join(said)}.")]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, PAGE_CHARS, break_long_words=False, break_on_hyphens=False)
