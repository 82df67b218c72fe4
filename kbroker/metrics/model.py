"""The shapes of metrics between the part that measures and those that publish.

Two steps. `observe/observer.py` measures: it fills `Figures`, plain numbers by the catalogue's
keys. `families.py` names: it turns figures into `Family` values, one per exposed name, which the
admin side writes out. All values here are immutable once handed over, so any thread may read them.

Labels are positional: a sample's label values stand in the order of its family's label names. An
empty value means that the label is left out (Prometheus knows no difference), which is how the sum
over all topics and the figure of each topic share one name, as Kafka's exporters do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

Kind = Literal["counter", "gauge", "histogram", "summary"]
LabelValues: TypeAlias = tuple[str, ...]


class Meter(NamedTuple):
    """A count since the start with its speed: exponentially weighted over one and 15 minutes."""

    total: int
    rate: float
    rate15: float


class Summary(NamedTuple):
    """Quantiles of the last minutes; count and sum since the start."""

    quantiles: tuple[tuple[float, float], ...]
    total: int
    sum: float


class Histogram(NamedTuple):
    """Counts since the start: (upper bound, how many up to it), ascending; the last is +Inf."""

    buckets: tuple[tuple[float, int], ...]
    total: int
    sum: float


Value: TypeAlias = int | float | Meter | Summary | Histogram
Sample: TypeAlias = tuple[LabelValues, Value]


class Family(NamedTuple):
    """One exposed name and all its samples.

    `name` is complete: a counter's ends in `_total` where the dialect has it so. By kind, a
    sample's value is a number (counter, gauge), a `Summary` or a `Histogram`, never a `Meter`.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    samples: list[tuple[LabelValues, float | int | Summary | Histogram]]


class Figures:
    """What was measured at one moment: samples by the keys of the catalogue.

    `wall_ms` is when. A key that is absent could not be measured here, and none of its names is
    exposed; a key with an empty list has names without samples.
    """

    def __init__(self, wall_ms: int, samples: Mapping[str, Iterable[Sample]]) -> None:
        self.wall_ms = wall_ms
        self._samples = {key: list(found) for key, found in samples.items()}

    def __contains__(self, key: str) -> bool:
        return key in self._samples

    def keys(self) -> Iterable[str]:
        return self._samples.keys()

    def samples(self, key: str) -> list[Sample]:
        """All samples of a key; empty if it was not measured."""
        return self._samples.get(key, [])

    def value(self, key: str, *labels: str) -> Value:
        """The one sample with these label values; KeyError if there is none."""
        for found, value in self._samples.get(key, ()):
            if found == labels:
                return value
        raise KeyError((key, *labels))
