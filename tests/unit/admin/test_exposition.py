"""What is written is what the parsers of prometheus_client read back."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest as write_text
from prometheus_client.openmetrics.exposition import generate_latest as write_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from prometheus_client.utils import floatToGoString

from kbroker.admin import exposition
from kbroker.metrics.model import Family, Histogram, Summary

FAMILIES = [
    Family("a_CamelCase_Gauge", "gauge", "Help with \\ and\na line.", (), [((), 1.5)]),
    Family("a_odd", "gauge", "Numbers.", ("n",),
           [(("1",), math.inf), (("2",), -math.inf), (("3",), 1e-9), (("4",), 2**53 + 1.0),
            (("5",), 12345678)]),
    Family("b_total", "counter", "B.", ("topic",), [(("",), 7), (('a"b\\c\nd',), 3)]),
    Family("c_bytesinpersec", "counter", "C.", ("topic",), [(("t",), 4)]),
    Family("d", "summary", "D.", ("request",),
           [(("Produce",), Summary(((0.5, 1.0), (0.99, 2.0)), 5, 6.5))]),
    Family("e_seconds", "histogram", "E.", (),
           [((), Histogram(((0.001, 1), (1.0, 3), (math.inf, 4)), 4, 9.0))]),
]  # fmt: skip


def written(openmetrics: bool) -> str:
    writer = exposition.Writer(openmetrics)
    parts = [writer.write(family) for family in FAMILIES]
    end = exposition.END_OF_OPENMETRICS if openmetrics else b""
    return (b"".join(parts) + end).decode()


def by_the_library(openmetrics: bool) -> str:
    """The same families, every line of them by prometheus_client."""
    registry = CollectorRegistry()
    for family in FAMILIES:
        registry.register(Given(family))
    written = write_openmetrics(registry) if openmetrics else write_text(registry)
    return written.decode()


class Given:
    def __init__(self, family: Family) -> None:
        self.family = family

    def collect(self) -> Iterator[Metric]:
        name, kind, text, names, samples = self.family
        base = name.removesuffix("_total") if kind == "counter" else name
        metric = Metric(base, text, "unknown" if (kind, base) == ("counter", name) else kind)
        for values, value in samples:
            labels = {label: at for label, at in zip(names, values, strict=True) if at}
            if isinstance(value, Summary):
                for quantile, at in value.quantiles:
                    metric.add_sample(name, {**labels, "quantile": str(quantile)}, at)
            elif isinstance(value, Histogram):
                for bound, below in value.buckets:
                    le = floatToGoString(bound)
                    metric.add_sample(f"{name}_bucket", {**labels, "le": le}, below)
            else:
                metric.add_sample(name, labels, value)
                continue
            metric.add_sample(f"{name}_count", labels, value.total)
            metric.add_sample(f"{name}_sum", labels, value.sum)
        yield metric


@pytest.mark.parametrize("openmetrics", [False, True])
def test_it_is_the_text_of_the_library(openmetrics: bool) -> None:
    read = read_openmetrics if openmetrics else read_text
    assert list(read(written(openmetrics))) == list(read(by_the_library(openmetrics)))


@pytest.mark.parametrize("openmetrics", [False, True])
def test_both_formats_are_read_back(openmetrics: bool) -> None:
    read = read_openmetrics if openmetrics else read_text
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for metric in read(written(openmetrics))
        if metric.name != "a_odd"
        for sample in metric.samples
    }
    assert samples == {
        ("a_CamelCase_Gauge", ()): 1.5,
        ("b_total", ()): 7,
        ("b_total", (("topic", 'a"b\\c\nd'),)): 3,
        ("c_bytesinpersec", (("topic", "t"),)): 4,
        ("d", (("quantile", "0.5"), ("request", "Produce"))): 1.0,
        ("d", (("quantile", "0.99"), ("request", "Produce"))): 2.0,
        ("d_count", (("request", "Produce"),)): 5,
        ("d_sum", (("request", "Produce"),)): 6.5,
        ("e_seconds_bucket", (("le", "0.001"),)): 1,
        ("e_seconds_bucket", (("le", "1.0"),)): 3,
        ("e_seconds_bucket", (("le", "+Inf"),)): 4,
        ("e_seconds_count", ()): 4,
        ("e_seconds_sum", ()): 9.0,
    }


def test_types_in_the_text_format() -> None:
    types = dict(
        line.split()[2:4] for line in written(False).splitlines() if line.startswith("# TYPE")
    )
    assert types == {
        "a_CamelCase_Gauge": "gauge",
        "a_odd": "gauge",
        "b_total": "counter",
        "c_bytesinpersec": "untyped",
        "d": "summary",
        "e_seconds": "histogram",
    }


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4", True),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6", True),
        ("application/openmetrics-text; version=0.0.1", False),
    ],
)
def test_the_format_is_the_readers_choice(accept: str, openmetrics: bool) -> None:
    assert exposition.wants_openmetrics(accept) is openmetrics
