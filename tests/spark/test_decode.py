"""Any record in a topic becomes a row or a quarantined record, and nothing else."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from spark_jobs.decode import AHEAD_MS_MAX, BEHIND_DAYS_MAX, DAY_MS, Decoded, decoder
from spark_jobs.schema import METRICS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(180)]

NOW_MS = time.time_ns() // 1_000_000
HEAD = f'"schema_version":1,"event_time_ms":{NOW_MS}'
WHOLE = {
    "schema_version": 1, "event_time_ms": NOW_MS, "broker_id": 1, "run_ms": 5, "sequence": 7,
    "metric_name": "RequestTime", "request": "Produce", "network_idle": 1, "count": 3,
    "buckets": [{"le": 0.5, "count": 2}, {"le": "Infinity", "count": 1}],
}  # fmt: skip

GOOD = [
    json.dumps(WHOLE).encode(),
    b"{%s}" % HEAD.encode(),
    b' {%s,"topic":null,"new_field":{"deep":[1]}}\n' % HEAD.encode(),
    b'{%s,"topic":"a\\u0000b"}' % HEAD.encode(),
    b'{%s,"topic":"%s"}' % (HEAD.encode(), b"y" * 300_000),
    b'{"schema_version":1,"event_time_ms":%d}' % (NOW_MS + AHEAD_MS_MAX),
    b'{"schema_version":1,"event_time_ms":%d}' % (NOW_MS - BEHIND_DAYS_MAX * DAY_MS),
]


def bad(text: str) -> bytes:
    return ("{" + HEAD + "," + text + "}").encode()


BAD: list[tuple[bytes | None, str]] = [
    (None, "no value"),
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"\xff\xfe", "not UTF-8"),
    (b'{"topic":"\xff"}', "not UTF-8"),
    (b"5", "not an object"),
    (b"null", "not an object"),
    (b"[{%s}]" % HEAD.encode(), "not an object"),
    (b"{%s}x" % HEAD.encode(), "not JSON"),
    (b"{%s}}" % HEAD.encode(), "not JSON"),
    (b"{%s},{%s}" % (HEAD.encode(), HEAD.encode()), "not JSON"),
    (b"{'schema_version':1}", "not JSON"),
    (bad('"topic":"\\ud800"'), "not JSON"),
    (bad('"new":' + "[" * 5000 + "]" * 5000), "not JSON"),
    (bad('"broker_id":' + "1" * 5000), "not JSON"),
    (b"{}", "without schema_version"),
    (b'{"schema_version":1}', "without event_time_ms"),
    (b'{"schema_version":2,"event_time_ms":"soon"}', "unknown schema_version 2"),
    (b'{"schema_version":"1"}', "field schema_version is not long"),
    (bad('"broker_id":"1"'), "field broker_id is not long"),
    (bad('"broker_id":1.5'), "field broker_id is not long"),
    (bad('"broker_id":1e3'), "field broker_id is not long"),
    (bad('"broker_id":true'), "field broker_id is not long"),
    (bad('"broker_id":99999999999999999999'), "field broker_id is not long"),
    (bad('"topic":5'), "field topic is not string"),
    (bad('"topic":{"a":1}'), "field topic is not string"),
    (bad('"network_idle":"NaN"'), "field network_idle is not double"),
    (bad('"network_idle":NaN'), "field network_idle is not double"),
    (bad('"network_idle":1e999'), "field network_idle is not double"),
    (bad('"network_idle":[1]'), "field network_idle is not double"),
    (bad('"buckets":{}'), "field buckets is not buckets"),
    (bad('"buckets":[5]'), "field buckets is not buckets"),
    (bad('"buckets":[null]'), "field buckets is not buckets"),
    (bad('"buckets":[{"le":1}]'), "field buckets is not buckets"),
    (bad('"buckets":[{"le":"x","count":1}]'), "field buckets is not buckets"),
    (bad('"buckets":[{"le":1,"count":-1}]'), "field buckets is not buckets"),
    (b'{"schema_version":1,"event_time_ms":-1}', "event_time_ms is more than 400 days old"),
    (b'{"schema_version":1,"event_time_ms":%d}' % (2**63 - 1),
     "event_time_ms is more than a day ahead"),
]  # fmt: skip


def decoded(spark: Any, values: list[bytes | None], table: str = "metrics") -> Decoded:
    from pyspark.sql import functions as F

    rows = [(b"k", value, "t", 3, offset) for offset, value in enumerate(values)]
    columns = "key binary, value binary, topic string, partition int, offset long"
    batch = spark.createDataFrame(rows, columns).withColumn("timestamp", F.current_timestamp())
    return decoder(table, lambda: NOW_MS)(batch)


def test_a_whole_record_becomes_a_row(spark: Any) -> None:
    good, _ = decoded(spark, [GOOD[0]])
    (row,) = good.collect()
    found = row.asDict(recursive=True)
    assert (row.source_topic, row.source_partition, row.source_offset) == ("t", 3, 0)
    assert row.event_time.timestamp() * 1000 == pytest.approx(NOW_MS, abs=0.01)
    expected = {name: WHOLE.get(name) for name in METRICS.json_columns}
    expected["network_idle"] = 1.0
    expected["buckets"] = [{"le": 0.5, "count": 2}, {"le": float("inf"), "count": 1}]
    assert {name: found[name] for name in expected} == expected
    wanted = [f for f in METRICS.row_type() if f.name in METRICS.json_columns]
    assert [(f.name, f.dataType) for f in good.schema][-len(wanted) :] == [
        (f.name, f.dataType) for f in wanted
    ]


def test_each_record_is_a_row_or_has_its_reason(spark: Any) -> None:
    good, aside = decoded(spark, [*GOOD, *(value for value, _ in BAD)])
    assert aside is not None
    assert [row.source_offset for row in good.collect()] == list(range(len(GOOD)))
    reasons = {row.source_offset - len(GOOD): row for row in aside.collect()}
    found = [(value, reasons[n].reason if n in reasons else None)
             for n, (value, _) in enumerate(BAD)]  # fmt: skip
    assert found == BAD
    kept = [reasons[n].value for n in range(len(BAD))]
    assert [None if value is None else bytes(value) for value in kept] == [v for v, _ in BAD]


def test_whatever_the_bytes_are(spark: Any) -> None:
    """Of mutated records, each is in exactly one of the two, and the job goes on."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    values: list[bytes | None] = []
    for _ in range(1500):
        value = bytearray(chance.choice([GOOD[0], bad('"topic":"t"'), b'{"a":[{}]}']))
        for _ in range(chance.randint(1, 4)):
            where = chance.randrange(len(value))
            cut = chance.choice([b"", b"{", b'"', b"\\", b"1e9", b"\x00", b"\xe2", b"null", b","])
            value[where : where + chance.randint(0, 3)] = cut
        values.append(bytes(value))
    good, aside = decoded(spark, values)
    assert aside is not None
    found = [row.source_offset for row in good.select("source_offset").collect()]
    found += [row.source_offset for row in aside.select("source_offset").collect()]
    assert sorted(found) == list(range(len(values)))


def test_of_any_other_topic_the_bytes(spark: Any) -> None:
    good, aside = decoded(spark, [b"\xff\x00", None], "plain")
    assert aside is None
    assert [row.value for row in good.collect()] == [b"\xff\x00", None]


def test_a_stamp_far_away_makes_no_directory_of_its_own(spark: Any) -> None:
    rows = [(b"k", b"v", "t", 0, n) for n in range(3)]
    columns = "key binary, value binary, topic string, partition int, offset long"
    batch = spark.createDataFrame(rows, columns).selectExpr(
        "*", f"timestamp_millis({NOW_MS} + CASE offset WHEN 0 THEN 0 WHEN 1 THEN {10 * DAY_MS}"
        f" ELSE -{1000 * DAY_MS} END) AS timestamp"
    )  # fmt: skip
    found = decoder("plain", lambda: NOW_MS)(batch).good.orderBy("source_offset").collect()
    assert {round(row.event_time.timestamp() * 1000) for row in found} == {NOW_MS}
    assert len({row.source_time for row in found}) == 3
