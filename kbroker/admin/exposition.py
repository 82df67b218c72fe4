"""Families written out as Prometheus reads them; prometheus_client comes in here alone.

Two formats: the text format 0.0.4, and OpenMetrics 1.0 for a client that accepts it. A family is
written by itself, so that a scrape can pause between two; the end mark of OpenMetrics comes once,
last.

prometheus_client writes the head of each family; the lines of
samples are put together here, with each set of labels written once a scrape. That takes a quarter
of the library's time, most of it with the GIL; tests read both with the library's parsers and
compare. Our names need no escaping. A counter whose name does not end in `_total` (one dialect has
such) is written as of unknown type, since neither format knows it.

A `Writer` belongs to one scrape and one thread. Importing prometheus_client costs 100 ms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import exposition as text_format
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics_format

from kbroker.metrics.model import Family, Histogram, LabelValues, Summary

END_OF_OPENMETRICS: Final = b"# EOF\n"
_OPENMETRICS: Final = "application/openmetrics-text"
_TOTAL: Final = "_total"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header names OpenMetrics in a version that we write."""
    for offer in accept.split(","):
        kind, *parameters = (part.strip() for part in offer.split(";"))
        versions = [it.partition("=")[2] for it in parameters if it.startswith("version=")]
        if kind == _OPENMETRICS and versions in ([], ["1.0.0"]):
            return True
    return False


def content_type(openmetrics: bool) -> str:
    if openmetrics:
        return openmetrics_format.CONTENT_TYPE_LATEST
    return text_format.CONTENT_TYPE_PLAIN_0_0_4


class Writer:
    """The families of one scrape, in one format."""

    def __init__(self, openmetrics: bool) -> None:
        self._openmetrics = openmetrics
        self._pairs: dict[tuple[Sequence[str], LabelValues], str] = {}

    def write(self, family: Family) -> bytes:
        """One family with its HELP and TYPE lines."""
        return self._head(family) + "".join(self._lines(family)).encode()

    def _head(self, family: Family) -> bytes:
        name, kind = family.name, str(family.kind)
        if kind == "counter":
            name = name.removesuffix(_TOTAL)
            kind = kind if name != family.name else "unknown"
        registry = _OneFamily(Metric(name, family.help, kind))
        if self._openmetrics:
            write = openmetrics_format.generate_latest
            head: bytes = write(registry)  # type: ignore[no-untyped-call]
            return head.removesuffix(END_OF_OPENMETRICS)
        return text_format.generate_latest(registry)

    def _lines(self, family: Family) -> Iterator[str]:
        name = family.name
        for values, value in family.samples:
            pairs = self._pairs.get((family.labels, values))
            if pairs is None:
                pairs = self._pairs[family.labels, values] = _pairs(family.labels, values)
            braces = f"{{{pairs}}}" if pairs else ""
            if isinstance(value, int | float):
                yield f"{name}{braces} {_number(value)}\n"
                continue
            first = f"{pairs}," if pairs else ""
            if isinstance(value, Summary):
                for quantile, at in value.quantiles:
                    yield f'{name}{{{first}quantile="{quantile}"}} {_number(at)}\n'
            elif isinstance(value, Histogram):
                for bound, below in value.buckets:
                    le = _number(float(bound))
                    yield f'{name}_bucket{{{first}le="{le}"}} {below}\n'
            yield f"{name}_count{braces} {value.total}\n"
            yield f"{name}_sum{braces} {_number(value.sum)}\n"


class _OneFamily:
    """The only thing that the library's writers ask of a registry."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def _pairs(names: Sequence[str], values: LabelValues) -> str:
    """The labels between the braces, without those that are empty: there is no difference."""
    named = zip(names, values, strict=True)
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in named if value)


def _number(value: int | float) -> str:
    if isinstance(value, int) or math.isfinite(value):
        return repr(value)
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"
