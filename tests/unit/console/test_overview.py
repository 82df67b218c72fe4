"""The first page of the console: what it calls well, and what it raises an alarm of."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.console.page import Tone
from kbroker.console.pages import overview
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.findings import cluster_health
from kbroker.findings.cluster_health import HeldBack
from kbroker.security.rights import Operation
from kbroker.types import TopicPartition
from tests.unit.console.fake_cluster import (
    GB,
    NOW_MS,
    SAMPLES,
    FakeClient,
    FakeHere,
    asked_of,
    cluster_of,
    directory,
    facts,
    names,
    notices,
    part,
    rows,
)

DAY_S = 86_400


@pytest.fixture(autouse=True)
def no_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_health, "held_back", lambda *_: HeldBack({}, ()))


def test_a_cluster_that_is_well() -> None:
    client = FakeClient(cluster_of((1,), orders=[part(0), part(1)]))
    page = overview.make(asked_of(client))
    assert notices(page) == ["nothing is wrong"]
    assert facts(page, "alarms") == {
        "under_replicated": 0, "offline": 0, "below_min_isr": 0, "offline_directories": 0,
        "failing_tasks": 0, "dead_threads": 0, "late_transactions": None,
    }  # fmt: skip
    found = facts(page, "cluster")
    assert (found["topics"], found["partitions"], found["version"]) == (1, 2, "0.1.0")
    assert found["controller"] == "this broker"
    traffic = facts(page, "traffic")
    assert (traffic["messages_in"], traffic["bytes_in"], traffic["bytes_out"]) == (7.5, 2048, 4096)
    (disk,) = rows(page, "disks")
    assert (disk["directory"], disk["free"], disk["state"]) == ("/data", 0.6, "online")
    assert "certificates" not in names(page)
    assert [row["verdict"] for row in rows(page, "checks")] == ["ok"] * 3


def test_each_alarm() -> None:
    cluster = cluster_of(
        (1,),
        orders=[part(0, 1, (1, 2), (1,)), part(1, -1, (2,), ()), part(2)],
        bills=[part(0, 1, (1, 3), (1,))],
    )
    client = FakeClient(cluster)
    client.settings = {"orders": {"min.insync.replicas": "2"}}
    client.directories = {1: [directory(error=ErrorCode.KAFKA_STORAGE_ERROR)]}
    samples = {**SAMPLES, "tasks_failing": [((), 2)], "threads_dead": [((), 1)]}
    page = overview.make(asked_of(client, FakeHere(samples)))
    found = facts(page, "alarms")
    assert (found["under_replicated"], found["offline"], found["below_min_isr"]) == (3, 1, 1)
    assert (found["offline_directories"], found["failing_tasks"], found["dead_threads"]) == (
        1,
        2,
        1,
    )
    said = notices(page)
    assert said[0].startswith("partitions: 1 of 4 have no leader: orders-1 on broker 2")
    assert len(notices(page, Tone.BAD)) == 3 and len(notices(page, Tone.WARN)) == 1
    assert said[-1].startswith("partitions: 2 of 4 lack in-sync replicas")


def test_a_visitor_without_rights_sees_no_figures() -> None:
    client = FakeClient(cluster_of((1,), orders=[part(0)]))
    client.operations = frozenset({Operation.CREATE})
    client.directories = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    page = overview.make(asked_of(client, FakeHere(None)))
    assert "traffic" not in names(page)
    assert facts(page, "alarms")["offline_directories"] is None
    assert facts(page, "cluster")["version"] is None
    assert any("you may not see" in each for each in notices(page, Tone.WARN))
    assert "disks" not in names(page)


@pytest.mark.parametrize(
    "error", [UserError("cannot connect"), KafkaError(ErrorCode.NETWORK_EXCEPTION, "cut")]
)
def test_no_broker_answers(error: Any) -> None:
    page = overview.make(asked_of(FakeClient(error), FakeHere(None)))
    assert len(notices(page, Tone.BAD)) == 1 and len(page.sections) == 1


def test_certificates_that_expire_first_come_first() -> None:
    client = FakeClient(cluster_of((1, 2), orders=[part(0)]))
    client.not_after_s = {2: NOW_MS / 1000 + 2 * DAY_S}
    samples = {**SAMPLES, "certificate_expiries": [(("TLS",), NOW_MS // 1000 + 90 * DAY_S)]}
    page = overview.make(asked_of(client, FakeHere(samples)))
    first, second = rows(page, "certificates")
    assert (first["broker"], first["listener"], first["left_ms"]) == (2, None, 2 * DAY_S * 1000)
    assert (second["broker"], second["listener"]) == (1, "TLS")
    assert any(each.startswith("certificate: broker 2") for each in notices(page, Tone.WARN))


def test_a_full_disk_is_a_notice() -> None:
    client = FakeClient(cluster_of((1,), orders=[part(0)]))
    client.directories = {1: [directory(free=4 * GB)]}
    page = overview.make(asked_of(client))
    (said,) = notices(page, Tone.BAD)
    assert said.startswith("disk: broker 1 /data: 4.0 GB of 100 GB free")


def test_partitions_beyond_the_bound_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def held_back(client: Any, led: list[TopicPartition], pause: Any) -> HeldBack:
        asked.append(len(led))
        return HeldBack({}, ())

    monkeypatch.setattr(cluster_health, "held_back", held_back)
    client = FakeClient(cluster_of((1,), orders=[part(index) for index in range(2_500)]))
    page = overview.make(asked_of(client))
    assert asked == [overview.LED_ASKED_MAX]
    assert any(
        row["seen"] == "looked at in 2,000 of 2,500 partitions" for row in rows(page, "checks")
    )


def test_many_troubles_are_some_notices_and_all_checks() -> None:
    client = FakeClient(cluster_of((1,), orders=[part(0)]))
    full = [directory(f"/data-{number}", free=GB) for number in range(600)]
    client.directories = {1: full}
    page = overview.make(asked_of(client))
    said = notices(page)
    assert len(said) == overview.NOTICES_MAX + 1 and said[-1] == "and 580 more"
    assert len(rows(page, "checks")) == len(rows(page, "disks")) == 500
    rest = overview.make(asked_of(client, checks_from="500", disks_from="500"))
    assert len(rows(rest, "disks")) == 100 and len(rows(rest, "checks")) == 102


def test_a_broker_whose_certificate_is_not_accepted_is_a_notice() -> None:
    client = FakeClient(cluster_of((1,), orders=[part(0)]))

    def refuse(address: Any) -> Any:
        raise UserError("host-1:9092: its certificate is not accepted", "see ssl.truststore")

    client.cluster.link = refuse
    page = overview.make(asked_of(client))
    said = ["brokers: broker 1: host-1:9092: its certificate is not accepted"]
    assert notices(page, Tone.BAD) == said
    assert facts(page, "alarms")["offline"] == 0 and len(rows(page, "disks")) == 1


def test_checks_that_come_too_late_are_lines_of_the_page() -> None:
    """A broker that gives no answer takes the time of the checks after it."""
    client = FakeClient(cluster_of((1, 2), orders=[part(0)]))

    def hang(address: Any) -> Any:
        client.cluster.clock.advance(ms=overview.CHECKS_MS_MAX)
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {address} does not answer")

    client.cluster.link = hang
    page = overview.make(asked_of(client))
    assert [(row["name"], str(row["seen"])[:11]) for row in rows(page, "checks")] == [
        ("brokers", "broker 1: b"),
        ("brokers", "not looked "),
        ("certificate", "not looked "),
        ("partitions", "1 in 1 topi"),
        ("transactions", "not looked "),
        ("disk", "not looked "),
    ]
    assert facts(page, "alarms")["under_replicated"] == 0
    assert facts(page, "alarms")["offline_directories"] is None


def test_a_check_that_fails_is_a_line_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient(cluster_of((1,), orders=[part(0)]))
    client.directories = KafkaError(ErrorCode.NETWORK_EXCEPTION, "cut")

    def refuse() -> Any:
        raise UserError("a certificate is not accepted", "see ssl.truststore")

    monkeypatch.setattr(client, "reassignments", refuse)
    page = overview.make(asked_of(client))
    assert [(row["name"], row["verdict"]) for row in rows(page, "checks")] == [
        ("brokers", "ok"), ("partitions", "warning"), ("disk", "warning"),
    ]  # fmt: skip
    assert rows(page, "checks")[1]["seen"] == "unknown: a certificate is not accepted"
    assert facts(page, "alarms")["under_replicated"] is None
    assert facts(page, "cluster")["partitions"] is None


def test_a_visitor_whose_password_was_changed_has_to_log_in_again() -> None:
    refused = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no")
    with pytest.raises(KafkaError):
        overview.make(asked_of(FakeClient(refused), FakeHere(None)))
    client = FakeClient(cluster_of((1,), orders=[part(0)]))
    client.directories = refused
    with pytest.raises(KafkaError):
        overview.make(asked_of(client))


def test_a_login_that_is_refused_ends_the_page() -> None:
    """As that of any other page: the visitor has to log in again."""
    refused = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED)
    with pytest.raises(KafkaError) as raised:
        overview.make(asked_of(FakeClient(refused)))
    assert raised.value is refused
