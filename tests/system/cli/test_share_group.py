"""`kbroker group` with a share group at a broker in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.cli.main import main
from kbroker.protocol import messages
from kbroker.testing import Broker
from kbroker.types import ApiKey
from tests.support.share_client import ShareClient, ShareMember
from tests.unit.net.harness import eventually


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 2}) as broker:
        with ShareClient(broker.bootstrap) as client:
            for partition in range(2):
                client.produce("orders", 10, partition)
            eventually(client.is_coordinated, "groups have a coordinator")
        yield broker


class Command:
    def __init__(self, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        self._broker = broker
        self._capsys = capsys

    def run(self, *words: str) -> tuple[int, str, str]:
        status = main(["group", *words, "-b", self._broker.bootstrap])
        captured = self._capsys.readouterr()
        return status, captured.out, captured.err

    def document(self, *words: str) -> Any:
        status, out, err = self.run(*words, "-o", "json")
        assert (status, err) == (0, ""), (out, err)
        return json.loads(out)


@pytest.fixture
def command(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(broker, capsys)


def test_list_describe_delete(broker: Broker, command: Command) -> None:
    reader = ShareMember(broker.bootstrap, "readers", "member-1")
    reader.join("orders")
    with ShareClient(broker.bootstrap) as client:
        (listed,) = command.document("list")
        assert (listed["group"], listed["state"]) == ("readers", "Stable")
        (described,) = command.document("describe", "readers")
        assert (described["state"], described["protocol_type"]) == ("Stable", "share")
        (member,) = described["members"]
        assert member["member_id"] == "member-1"
        assert member["partitions"] == ["orders-0", "orders-1"]
        assert [row["members"] for row in described["partitions"]] == [["member-1"]] * 2
        assert {row["start"] for row in described["partitions"]} == {None}  # not read yet
        status, out, err = command.run("delete", "readers", "--execute")
        assert (status, out) == (1, "") and "NON_EMPTY_GROUP (68)" in err
        reader.leave()

        topic_id = client.topic_id("orders")
        table = messages.alter_share_group_offsets
        partitions = [
            table.RequestPartition(partition_index=n, start_offset=4 + n) for n in range(2)
        ]
        topic = table.RequestTopic(topic_name="orders", partitions=partitions)
        request = table.Request(group_id="readers", topics=[topic])
        altered = client.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, request)
        (topic_answer,) = altered.responses
        assert topic_answer.topic_id == topic_id
        assert [row.error_code for row in topic_answer.partitions] == [0, 0]

    (described,) = command.document("describe", "readers")
    rows = [(row["start"], row["lag"], row["error"]) for row in described["partitions"]]
    assert rows == [(4, 6, None), (5, 5, None)]
    assert described["lag"] == 11
    lines = command.run("describe", "readers", "--members")[1].splitlines()
    assert lines[0].startswith("readers  Empty, share group, 0 members, coordinator ")
    assert lines[0].endswith(", lag 11")
    assert [line.split() for line in lines[1:]] == [
        ["TOPIC", "PARTITION", "START", "LAG", "MEMBERS"],
        ["orders", "0", "4", "6", "0"],
        ["orders", "1", "5", "5", "0"],
    ]

    status, out, err = command.run("delete", "readers")
    assert (status, out) == (0, "readers: would be deleted\n")
    assert command.run("delete", "readers", "--execute") == (0, "readers: deleted\n", "")
    assert command.document("list") == []
    status, out, err = command.run("describe", "readers")
    assert (status, out) == (1, "") and "GROUP_ID_NOT_FOUND (69)" in err
