"""Pages of the console about a running broker: their numbers are those of the commands, and a
visitor sees what his rights allow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kbroker.cli.command_config import login_of_file
from kbroker.cli.main import main
from kbroker.console.page import Tone
from kbroker.console.pages import broker as broker_page
from kbroker.console.pages import brokers, overview, security, transactions, why
from kbroker.peer.client import Client
from kbroker.testing import Broker
from tests.unit.console.fake_cluster import FakeHere, asked_of, facts, names, notices, rows

Run = Callable[..., Any]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def kbroker(*words: str) -> Any:
        main([*words, "-o", "json"])
        return json.loads(capsys.readouterr().out)

    return kbroker


def open_transaction(bootstrap: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "payments"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("orders", b"one", partition=partition)
    producer.flush(30)
    return producer


def test_numbers_are_those_of_the_commands(run: Run) -> None:
    with Broker(topics={"orders": 2, "bills": 1}) as running:
        at = ("-b", running.bootstrap)
        producer = open_transaction(running.bootstrap)
        with Client(running.bootstrap) as client:
            asked = asked_of(client, FakeHere({}))._replace(now_ms=running.clock.now_ms())
            found = overview.make(asked)
            checks = [row for row in run("health", *at)["checks"] if row["name"] != "controller"]
            drawn = [
                (row["verdict"], row["name"], row["fix"] or "") for row in rows(found, "checks")
            ]
            assert drawn == [(row["verdict"], row["name"], row["fix"]) for row in checks]
            frame = run("top", *at)
            cluster = facts(found, "cluster")
            assert (cluster["partitions"], cluster["brokers"]) == (frame["partitions"], 1)
            assert facts(found, "alarms")["under_replicated"] == frame["under_replicated"]

            (row,) = rows(brokers.make(asked), "brokers")
            (node,) = frame["nodes"]
            assert (row["broker"], row["leads"]) == (node["broker"], node["leaders"])
            assert row["replicas"] == node["replicas"]
            assert row["logs_bytes"] == frame["size_bytes"]
            of_one = broker_page.make(asked._replace(path={"broker": str(row["broker"])}))
            assert len(rows(of_one, "replicas")) == node["replicas"]
            assert rows(of_one, "listeners") and rows(of_one, "moves") == []

            page = transactions.make(asked)
            (listed,) = rows(page, "open")
            (known,) = run("txn", "describe", "payments", *at)
            for name, column in (("transactional_id", "transactional_id"), ("state", "state"),
                                 ("producer_id", "producer_id"), ("start_ms", "began_ms"),
                                 ("coordinator", "coordinator")):  # fmt: skip
                assert listed[column] == known[name]
            assert listed["partitions"] == len(known["partitions"]) == 2
            held = {row["partition"]: row for row in rows(page, "held")}
            explained = run("explain", "orders/0", "--isolation", "read_committed", *at)
            assert held[0]["waiting"] == explained["log"]["waiting"] == 1
            assert held[0]["transactional_id"] == "payments" and len(held) == 2
            producer.abort_transaction(30)
            assert rows(transactions.make(asked), "open") == []


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Callable[[str], Client]]:
    """A client of each user. Alice may do everything, bob reads one topic."""
    clients: list[Client] = []
    acls = ["alice All cluster", "alice All topic:*", "alice All group:*", "bob Read topic:orders"]
    users = {"alice": "pw", "bob": "pw"}
    with Broker(topics={"orders": 1, "bills": 1}, users=users, acls=acls) as running:

        def client_of(user: str) -> Client:
            file = tmp_path / f"{user}.properties"
            settings = running.java_settings(user)
            lines = [f"{name}={value}\n" for name, value in settings.items()]
            file.write_text("".join(lines), encoding="utf-8")
            clients.append(Client(running.bootstrap, login=login_of_file(str(file))))
            return clients[-1]

        yield client_of
        for each in clients:
            each.close()


def test_a_visitor_sees_as_much_as_the_rights_allow(secured: Callable[[str], Client]) -> None:
    answer = {"causes": [], "seen": [], "not_seen": [], "broker": 1}
    alice, bob = secured("alice"), secured("bob")
    question = {
        "may_principal": "User:bob", "may_operation": "Read",
        "may_type": "topic", "may_name": "bills",
    }  # fmt: skip
    page = security.make(asked_of(alice, FakeHere({}), **question))
    assert {row["principal"] for row in rows(page, "acls")} == {"User:alice", "User:bob"}
    assert {row["user"] for row in rows(page, "users")} == {"alice", "bob"}
    assert facts(page, "explained")["allowed"] is False
    assert why.make(asked_of(alice, FakeHere(None, answer), slow="1")).status == 200

    page = security.make(asked_of(bob, FakeHere({})))
    assert not {"acls", "users", "quotas"} & {*names(page)}
    assert len(notices(page, Tone.WARN)) == 3
    # The figures and the answers of this broker are not even asked for.
    page = overview.make(asked_of(bob, FakeHere(None)))
    assert facts(page, "cluster")["topics"] == 1 and "disks" not in names(page)
    assert why.make(asked_of(bob, FakeHere(None), slow="1")).status == 403
    assert why.make(asked_of(bob, FakeHere(None), partition="bills/0")).status == 403
    assert rows(transactions.make(asked_of(bob, FakeHere({}))), "open") == []
