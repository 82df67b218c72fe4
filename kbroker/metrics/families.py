"""Figures under the names of the catalogue: what /metrics shows.

`families` is a generator: its caller may let other threads run between two families, so that a
scrape delays no request. Pure functions, any thread. The dialects come in the order of DIALECTS;
a name that two dialects share is given once, and so are the samples of names that several metrics
of the catalogue share (kafka-ui's).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kbroker.metrics.catalogue import CATALOGUE
from kbroker.metrics.model import Family, Figures, Histogram, Meter, Sample, Summary
from kbroker.metrics.rows import DIALECTS, Metric, Name

DEFAULT_DIALECTS = ("canonical", "strimzi")


def families(
    figures: Figures,
    dialects: Collection[str] = DEFAULT_DIALECTS,
    suffixes: Collection[str] = (),
) -> Iterator[Family]:
    """Every name of `dialects` that has been measured.

    `suffixes`: only metrics of which the canonical name ends in one of them (case-sensitive).
    """
    merged: dict[str, Family] = {}
    for metric in CATALOGUE:
        if metric.key not in figures or not _asked_for(metric, suffixes):
            continue
        given: set[str] = set()
        for dialect in DIALECTS:
            name = metric.names.get(dialect)
            if dialect not in dialects or name is None or name.text in given:
                continue
            given.add(name.text)
            family = _family(metric, name, figures.samples(metric.key))
            if dialect == "kafka-ui":
                merged.setdefault(family.name, family._replace(samples=[])).samples.extend(
                    family.samples
                )
            else:
                yield family
    yield from merged.values()


def _asked_for(metric: Metric, suffixes: Collection[str]) -> bool:
    return not suffixes or any(metric.canonical.endswith(suffix) for suffix in suffixes)


def _family(metric: Metric, name: Name, samples: list[Sample]) -> Family:
    before = tuple(value for _, value in name.fixed)
    return Family(
        name.text,
        name.kind,
        metric.help,
        (*(label for label, _ in name.fixed), *metric.labels),
        [((*before, *labels), _number(name, value)) for labels, value in samples],
    )


def _number(
    name: Name, value: int | float | Meter | Summary | Histogram
) -> int | float | Summary | Histogram:
    if not isinstance(value, Meter):
        return value
    if name.of == "count":
        return value.total
    return value.rate15 if name.of == "rate15" else value.rate
