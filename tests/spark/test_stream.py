"""The streaming job against a broker: what lands, and where it goes on."""

from __future__ import annotations

import pytest

from tests.spark.conftest import Landing, Send

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(180)]


def test_lands_what_is_there_and_goes_on(landing: Landing, send: Send) -> None:
    send("first", [b"a", b"b"], partitions=2)
    send("first", [b"c"], partition=1)
    assert landing.run("--topic", "first") == []
    assert landing.offsets("plain") == [(0, 0), (0, 1), (1, 0)]
    landing.run("--topic", "first")
    send("first", [b"d"], partition=1)
    assert landing.run("--topic", "first") == []
    rows = landing.rows("plain")
    assert [bytes(row.value) for row in rows] == [b"a", b"b", b"c", b"d"]
    assert {row.source_topic for row in rows} == {"first"}
    assert [row.event_time for row in rows] == [row.source_time for row in rows]
