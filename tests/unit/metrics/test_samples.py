"""The table of the metrics topic: one flat schema, filled by figures that exist and add up."""

from __future__ import annotations

from kbroker.metrics.catalogue import BY_KEY
from kbroker.metrics.samples import COMMON, FROM_FIGURES, KINDS, OFTEN_S, SELDOM_S, columns


def test_a_field_has_one_type_over_all_kinds() -> None:
    types: dict[str, set[str]] = {}
    for kind in KINDS:
        for field in (*COMMON, *kind.fields):
            types.setdefault(field.name, set()).add(field.type)
    assert {name: found for name, found in types.items() if len(found) > 1} == {}
    assert set(columns()) == set(types)


def test_names_and_periods() -> None:
    names = [kind.metric_name for kind in KINDS]
    assert len(set(names)) == len(names)
    assert {kind.period_s for kind in KINDS} == {OFTEN_S, SELDOM_S} == {15, 30}


def test_the_columns_of_the_documented_query() -> None:
    """SELECT topic, partition, SUM(message_count) ... WHERE metric_name = 'PartitionMessages'."""
    assert {"topic", "partition", "metric_name", "message_count"} <= set(columns())
    assert "PartitionMessages" in {kind.metric_name for kind in KINDS}


def test_figures_exist_and_none_is_a_quantile() -> None:
    for kind in FROM_FIGURES:
        for field in kind.fields:
            if field.figure:
                metric = BY_KEY[field.figure]
                assert metric.kind != "summary"
                assert (field.type == "buckets") is (metric.kind == "histogram")
                assert not kind.by or kind.by in metric.labels
                assert not field.of or (metric.labels and not kind.by)
            else:
                assert field.name == kind.by
