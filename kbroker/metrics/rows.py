"""What the rows of the table of metrics are made of: names in each dialect, and a metric of a kind.

Pure; `catalogue.py` has the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from kbroker.metrics.model import Kind

# In this order; the first two are on by default (`metrics.dialects`).
DIALECTS: Final = ("canonical", "strimzi", "confluent", "kafka-ui")

TOPIC_METRICS: Final = "kafka_server_BrokerTopicMetrics"

Of = Literal["value", "rate", "rate15", "count"]


class Name(NamedTuple):
    """A name in one dialect, and what of a metric it shows."""

    text: str
    kind: Kind
    of: Of = "value"
    fixed: tuple[tuple[str, str], ...] = ()  # labels that the name adds, before the metric's own


@dataclass(frozen=True, slots=True)
class Metric:
    key: str
    help: str
    unit: str
    labels: tuple[str, ...]
    names: dict[str, Name] = field(compare=False)
    note: str = ""  # for the documentation: what differs from Kafka, or why it is constant

    @property
    def canonical(self) -> str:
        return self.names["canonical"].text

    @property
    def kind(self) -> Kind:
        """Of the canonical name."""
        return self.names["canonical"].kind


def meter(
    key: str, canonical: str, help_: str, unit: str, labels: Iterable[str] = (), note: str = "",
) -> Metric:  # fmt: skip
    """A canonical `...PerSec`: a rate, and its count."""
    lower = canonical.lower()
    mbean, _, last = canonical.rpartition("_")
    names = {
        "canonical": Name(canonical, "gauge", "rate"),
        "strimzi": Name(lower.removesuffix("persec") + "_total", "counter", "count"),
        "confluent": Name(lower, "counter", "count"),
    }
    if mbean == TOPIC_METRICS:  # kafka-ui's tiles want one name, and the metric as a label
        rate15 = Name(f"{mbean}_FifteenMinuteRate", "gauge", "rate15", (("name", last),))
        names["kafka-ui"] = rate15
    return Metric(key, help_, unit, tuple(labels), names, note)


def gauge(
    key: str, canonical: str, help_: str, unit: str = "", labels: Iterable[str] = (),
    note: str = "", *, confluent: str = "",
) -> Metric:  # fmt: skip
    """A value that goes up and down; `...Percent` is Strimzi's `..._percent`."""
    lower = canonical.lower()
    strimzi = lower
    if canonical.endswith("Percent"):
        strimzi = lower.removesuffix("percent") + "_percent"
    return Metric(
        key,
        help_,
        unit,
        tuple(labels),
        {
            "canonical": Name(canonical, "gauge"),
            "strimzi": Name(strimzi, "gauge"),
            "confluent": Name(confluent or lower, "gauge"),
        },
        note,
    )


def times(
    key: str, canonical: str, help_: str, labels: Iterable[str] = (), note: str = ""
) -> Metric:
    """Durations in milliseconds, as quantiles with a count and a sum."""
    lower = canonical.lower()
    return Metric(
        key,
        help_,
        "ms",
        tuple(labels),
        {
            "canonical": Name(canonical, "summary"),
            "strimzi": Name(lower, "summary"),
            "confluent": Name(lower, "summary"),
        },
        note,
    )


def plain(
    kind: Kind, key: str, name: str, help_: str, unit: str = "", labels: Iterable[str] = (),
    note: str = "",
) -> Metric:  # fmt: skip
    """One name in every dialect."""
    names = {dialect: Name(name, kind) for dialect in DIALECTS if dialect != "kafka-ui"}
    return Metric(key, help_, unit, tuple(labels), names, note)
