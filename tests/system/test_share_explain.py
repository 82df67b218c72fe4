"""`kbroker share explain`: one record of a share group, from its leader and from the log."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.cli.main import main
from kbroker.testing import Broker
from tests.support.share_client import ShareClient, acquired, codes
from tests.system.test_share_fetch import OVERRIDES, initialize

ACCEPT, RELEASE, REJECT = 1, 2, 3


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(OVERRIDES, topics={"orders": 1}) as broker:
        yield broker


def test_a_record_from_its_delivery_to_its_end(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        status = main(["share", "explain", *words, "-b", broker.bootstrap])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    def explain(offset: int) -> Any:
        status, out, err = run("g", f"orders/0/{offset}", "-o", "json")
        assert (status, err) == (0, ""), (out, err)
        return json.loads(out)

    status, _, err = run("g", "orders/0/0")
    assert status == 1
    assert err.startswith("error: GROUP_ID_NOT_FOUND (69): no log has share group 'g'")
    with ShareClient(broker.bootstrap) as client:
        topic_id = client.topic_id("orders")
        initialize(client, topic_id)
        assert explain(7)["verdict"] == "not there yet: consumers can read up to 0"
        assert acquired(client.fetch(topic_id, wait_ms=0)) == []
        given: list[Any] = []
        for _ in range(100):
            client.produce("orders", 3)
            given = acquired(client.fetch(wait_ms=200))
            if given:
                break
            threading.Event().wait(0.01)  # until the start is written
        first = given[0][0]
        found = explain(first)
        assert (found["state"], found["delivery_count"], found["deliveries_max"]) == (
            "acquired", 1, 5,
        )  # fmt: skip
        assert found["member"] == "m"
        assert found["connection"].startswith("127.0.0.1")
        assert 0 < found["lock_left_ms"] <= 30_000
        assert found["verdict"].startswith("with m, which has to acknowledge it within ")
        assert found["window"]["in_flight"] == 3
        assert [each["event"] for each in found["history"]] == ["state begins", "start found"]
        answer = client.acknowledge(topic_id, (first, first, [RELEASE]))
        assert codes(answer) == [0]
        found = explain(first)
        assert found["verdict"] == (
            "available: delivered 1 of 5 times; the next fetch of a member gets it"
        )
        assert found["history"][-1]["event"] == "available again"
        client.fetch(wait_ms=0)
        assert codes(client.acknowledge(topic_id, (first + 1, first + 2, [ACCEPT]))) == [0]
        held = f"acknowledged: an earlier record keeps the start at {first}"
        assert explain(first + 1)["verdict"] == held
        assert codes(client.acknowledge(topic_id, (first, first, [ACCEPT]))) == [0]
        assert explain(first)["verdict"] == "done: acknowledged, delivered 2 times"
        status, out, _ = run("g", f"orders/0/{first}")
        assert status == 0
        assert out.startswith(f"g  orders/0/{first}\n  state       done, says its leader\n")
        assert "  verdict     done: acknowledged, delivered 2 times\n" in out
        assert "acknowledged" in out.splitlines()[-1]


def test_a_rejected_record_goes_to_the_dead_letter_topic(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> str:
        assert main([*words, "-b", broker.bootstrap]) == 0, capsys.readouterr()
        return capsys.readouterr().out

    def explained(offset: int) -> Any:
        return json.loads(run("share", "explain", "d", f"orders/0/{offset}", "-o", "json"))

    dead = "dlq.orders"
    run(
        "config", "set", "-g", "d", f"errors.deadletterqueue.topic.name={dead}",
        "errors.deadletterqueue.copy.record.enable=true", "share.auto.offset.reset=earliest",
    )  # fmt: skip
    run("topic", "create", dead, "-c", "errors.deadletterqueue.group.enable=true")
    with ShareClient(broker.bootstrap, "d") as client:
        topic_id = client.topic_id("orders")
        initialize(client, topic_id)
        client.produce("orders", 2)
        given: list[Any] = []
        for _ in range(100):
            given = acquired(client.fetch(topic_id, wait_ms=200))
            if given:
                break
        first, last = given[0][0], given[-1][1]
        assert codes(client.acknowledge(topic_id, (first, first, [REJECT]))) == [0]
        if last > first:
            assert codes(client.acknowledge(topic_id, (first + 1, last, [ACCEPT]))) == [0]
        for _ in range(200):
            if explained(first)["state"] == "done":
                break
            threading.Event().wait(0.02)  # until the copy and its state are written
        assert explained(first)["verdict"].startswith("done: archived, delivered 1 times")
    (copy,) = broker.records(dead)
    headers = dict(copy.headers)
    assert headers["__dlq.errors.offset"] == str(first).encode()
    assert headers["__dlq.errors.message"] == b"Offset rejected by client."
    assert headers["kb-dead-letter-reason"] == b"rejected"
    assert copy.value == broker.records("orders")[first].value


def test_a_released_record_waits(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: str) -> str:
        assert main([*words, "-b", broker.bootstrap]) == 0, capsys.readouterr()
        return capsys.readouterr().out

    settings = ("kb.share.release.delay.ms=3600000", "kb.share.release.delay.max.ms=3600000")
    run("config", "set", "-g", "w", "share.auto.offset.reset=earliest", *settings)
    with ShareClient(broker.bootstrap, "w") as client:
        topic_id = client.topic_id("orders")
        initialize(client, topic_id)
        client.produce("orders", 2)
        given: list[Any] = []
        for _ in range(100):
            given = acquired(client.fetch(topic_id, wait_ms=200))
            if given:
                break
        first = given[0][0]
        assert codes(client.acknowledge(topic_id, (first, first, [RELEASE]))) == [0]
        assert acquired(client.fetch(topic_id, wait_ms=0)) == []
        out = run("share", "explain", "w", f"orders/0/{first}")
    assert "  state       delayed, says its leader\n" in out
    assert " in flight, 1 delayed\n" in out
    assert "it waits, by kb.share.release.delay.ms: a member may have it in 59m" in out
