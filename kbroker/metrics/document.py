"""Writes docs/metrics.md from the catalogue.

    python -m kbroker.metrics.document [DIRECTORY]

A test compares the committed file with this module's output, so the documentation cannot
drift from the table. Output depends on the table alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kbroker.metrics.catalogue import CATALOGUE, QUANTILES, THEMES
from kbroker.metrics.rows import Metric

NAME: Final = "metrics.md"
_NOTICE: Final = (
    "<!-- Written by `python -m kbroker.metrics.document`; edit the table, not this file. -->"
)
_HOW: Final = f"""\
`/metrics` on the admin port shows every figure under the names of Kafka's beans (*canonical*) and
of nearly every public dashboard (*strimzi*). `metrics.dialects` adds those of Confluent's stacks
(*confluent*) and of kafka-ui. `?name=BytesInPerSec` keeps the metrics of which the canonical name
ends so; it may be repeated.

- A canonical name in `...PerSec` is a gauge: the rate of the last minute, weighted exponentially
  and moved on every 5 s. Its count is the `..._total` of the strimzi name.
- Shares and `...Percent` go from 0 to 1.
- A *summary* has the quantiles {", ".join(map(str, QUANTILES))} of the last minutes (a value
  that is a minute old weighs a third of a new one), and `_count` and `_sum` since the start. A
  quantile is 6.3 % off at most. Never average quantiles: `_sum` over `_count` is the mean.
- A topic's figure and the sum over all topics share a name; the sum has no label `topic`, and it
  does not fall when a topic is deleted. Topics without any have no sample.
- In the strimzi column, *same* is a name that all dialects share.\
"""


def page() -> str:
    """docs/metrics.md."""
    lines = [_NOTICE, "# Metrics", "", _HOW, ""]
    for title, metrics in THEMES:
        lines += [f"## {title}", "", *_table(metrics), ""]
    lines += ["## Names of other dialects", ""]
    lines += ["Where they are not the strimzi name.", ""]
    lines += ["| canonical | confluent | kafka-ui |", "|---|---|---|"]
    lines += [row for metric in CATALOGUE for row in _others(metric)]
    return "\n".join(lines) + "\n"


def _table(metrics: Sequence[Metric]) -> list[str]:
    lines = [
        "| canonical | kind | labels | strimzi | unit | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for metric in metrics:
        strimzi = metric.names["strimzi"].text
        cells = [
            f"`{metric.canonical}`",
            metric.kind,
            ", ".join(metric.labels),
            "same" if strimzi == metric.canonical else f"`{strimzi}`",
            metric.unit,
            f"{metric.help} {metric.note}".strip(),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _others(metric: Metric) -> list[str]:
    confluent, kafka_ui = metric.names["confluent"], metric.names.get("kafka-ui")
    if confluent.text == metric.names["strimzi"].text and kafka_ui is None:
        return []
    other = ""
    if kafka_ui is not None:
        labels = ",".join(f'{name}="{value}"' for name, value in kafka_ui.fixed)
        other = f"`{kafka_ui.text}{{{labels}}}`"
    return [f"| `{metric.canonical}` | `{confluent.text}` | {other} |"]


def main(arguments: list[str]) -> int:
    directory = Path(arguments[0]) if arguments else Path(__file__).parents[2] / "docs"
    (directory / NAME).write_text(page(), encoding="utf-8")
    print(directory / NAME)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
