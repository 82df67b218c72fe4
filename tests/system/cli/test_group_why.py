"""`kbroker group why`: rebalances of groups of both kinds, with their causes."""

from __future__ import annotations

from kbroker.peer.client import Client
from kbroker.peer.group_consumer import GroupConsumer
from perf.client import Client as ByteClient
from perf.consumer_groups.members import Member, await_coordinator, settle
from tests.system.cli.conftest import Document, MakeTopic, Run

SETTLE_S = 30.0
LEAVES = -1
# Apache Kafka does not say why.
LEFT = ("left", "gone")


def test_a_consumer_group(
    bootstrap: str, run: Run, document: Document, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(4)
    host, _, port = bootstrap.rpartition(":")
    one, two = Member(name, "one", topic), Member(name, "two", topic)
    with ByteClient(host, int(port)) as members:
        await_coordinator(members, [name])
        settle(members, [one], SETTLE_S)
        settle(members, [one, two], SETTLE_S)
        found = document("group", "why", name)
        assert (found["kind"], found["state"], found["waiting"]) == ("consumer", "Stable", [])
        first, second = found["rebalances"]
        assert [cause["member_id"] for cause in first["causes"]] == ["one"]
        assert (first["members"], first["moved"]) == (1, 4)
        ((cause),) = second["causes"]
        assert (cause["what"], cause["member_id"]) == ("joined", "two")
        assert (second["members"], second["moved"]) == (2, 2)
        assert second["stable_ms"] >= second["assigned_ms"] >= second["time_ms"]
        two.epoch = LEAVES
        two.step(members)
    (third,) = document("group", "why", name, "--last", "1")["rebalances"]
    ((cause),) = third["causes"]
    assert cause["member_id"] == "two" and cause["what"] in LEFT
    status, out, err = run("group", "why", name)
    head, titles, *rows = out.splitlines()
    assert (status, err) == (0, "")
    assert head.startswith(f"{name}  consumer, ")
    assert titles.split() == [
        "TIME", "EPOCH", "WHY", "MEMBER", "CLIENT", "HOST", "MEMBERS", "MOVED", "TOOK",
    ]  # fmt: skip
    assert [row.split()[2:5] for row in rows[:2]] == [
        ["joined", "one", "kbroker-perf"], ["joined", "two", "kbroker-perf"],
    ]  # fmt: skip


def test_a_classic_group(
    run: Run, document: Document, client: Client, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(2, records=1)
    consumer = GroupConsumer(client, name, topic, lambda where: {each: 0 for each in where})
    consumer.poll()
    found = document("group", "why", name)
    assert (found["kind"], found["state"]) == ("classic", "Stable")
    member_id = consumer.member.member_id
    (first,) = found["rebalances"]
    assert [(each["what"], each["member_id"]) for each in first["causes"]] == [
        ("joined", member_id)
    ]
    assert (first["members"], first["moved"]) == (1, 2)
    consumer.close()
    found = document("group", "why", name)
    assert found["state"] == "Empty"
    ((cause),) = found["rebalances"][-1]["causes"]
    assert cause["member_id"] == member_id and cause["what"] in LEFT


def test_a_group_that_is_not_there(run: Run, name: str) -> None:
    status, out, err = run("group", "why", name)
    assert (status, out) == (1, "")
    assert "GROUP_ID_NOT_FOUND (69)" in err
