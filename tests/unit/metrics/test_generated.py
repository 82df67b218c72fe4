"""Alert rules, scrape file and dashboard: every name in them is one that a scrape can hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbroker.metrics.alerts import alert_groups
from kbroker.metrics.catalogue import BY_KEY, CATALOGUE
from kbroker.metrics.dashboard import ROWS, dashboard
from kbroker.metrics.prometheus import NETWORK_NAMES, RESOURCE_NAMES, filtered
from tests.support.promql import series_names

ALERTS = [alert for group in alert_groups() for alert in group.alerts]
QUERIES = [query for row in ROWS for panel in row.panels for query in panel.queries]
OF_PROMETHEUS = {"up"}


def exposed_names() -> frozenset[str]:
    """Every series name that a scrape may hold, in all dialects."""
    found: set[str] = set()
    for metric in CATALOGUE:
        for name in metric.names.values():
            found.add(name.text)
            if name.kind in ("summary", "histogram"):
                found.update((f"{name.text}_count", f"{name.text}_sum"))
            if name.kind == "histogram":
                found.add(f"{name.text}_bucket")
    return frozenset(found)


def documented() -> dict[str, str]:
    return {alert.name: f"{alert.expr} for {alert.for_}" for alert in alert_groups()[0].alerts}


def test_names_and_thresholds_of_the_guide() -> None:
    rules = documented()
    assert rules["HighUnderReplicatedPartitions"] == (
        "kafka_server_ReplicaManager_UnderReplicatedPartitions > 0 for 5m"
    )
    assert rules["LowRequestHandlerIdle"] == (
        "kafka_server_KafkaRequestHandlerPool_RequestHandlerAvgIdlePercent < 0.2 for 10m"
    )
    assert rules["HighMemoryUsage"].startswith("kbroker_memory_limit_share > 0.7 ")
    assert "> 500000000 " in rules["HighDiskThroughput"]
    assert "> 200000000" in alert_groups("hdd")[0].alerts[5].expr
    assert "< 72 " in rules["LogDirectoryFullSoon"]


def test_no_two_alerts_of_one_name() -> None:
    names = [alert.name for alert in ALERTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("alert", ALERTS, ids=[alert.name for alert in ALERTS])
def test_alerts_name_series_that_exist(alert: object) -> None:
    expression = alert.expr  # type: ignore[attr-defined]
    assert set(series_names(expression)) - OF_PROMETHEUS <= exposed_names()


def test_panels_name_series_that_exist() -> None:
    for query in QUERIES:
        names = series_names(query.expr)
        assert names and set(names) <= exposed_names(), query.expr


def base(series: str) -> str:
    for ending in ("_bucket", "_count", "_sum"):
        if series not in {metric.canonical for metric in BY_KEY.values()}:
            series = series.removesuffix(ending)
    return series


def test_the_two_jobs_bring_all_that_alerts_and_dashboard_ask_for() -> None:
    brought = filtered(NETWORK_NAMES) | filtered(RESOURCE_NAMES)
    listed = {
        name.text
        for metric in BY_KEY.values()
        if metric.canonical in brought
        for name in metric.names.values()
    }
    asked = {base(name) for expr in expressions() for name in series_names(expr)} - OF_PROMETHEUS
    assert asked <= listed


def expressions() -> Iterator[str]:
    yield from (alert.expr for alert in ALERTS)
    yield from (query.expr for query in QUERIES)


def test_every_name_of_the_scrape_file_lets_something_through() -> None:
    for name in (*NETWORK_NAMES, *RESOURCE_NAMES):
        assert filtered([name]), name


def test_the_dashboard_is_one_grid() -> None:
    panels = dashboard()["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("a > 0", ["a"]),
        ('sum by (x, y) (rate(a_total{b="c\\"}", d=~"e"}[5m])) / on (x) group_left (z) b',
         ["a_total", "b"]),
        ("a and b unless c or d", ["a", "b", "c", "d"]),
        ("histogram_quantile(0.99, sum(rate(a_bucket[$__rate_interval])) by (le))", ["a_bucket"]),
        ("a offset 5m > bool 1e3", ["a"]),
        ('absent(up{job="x"})', ["up"]),
    ],
)  # fmt: skip
def test_series_of_an_expression(expression: str, names: list[str]) -> None:
    found = series_names(expression)
    assert [name for name in found if name != "m"] == names
