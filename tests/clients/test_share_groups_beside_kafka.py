"""`kafka-share-groups` unchanged, at kbroker and at Apache Kafka 4.3.0: the same words from both.

The same groups are made at both by the same requests; then each command is run at both, one after
the other. Ports differ, and how wide a column is by that; ids of members are the clients' own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from kbroker.protocol import messages
from kbroker.testing.plain import KEEPS_WHAT_IS_OLD, PlainBroker
from kbroker.types import ApiKey
from tests.clients.agents.tools import Tools
from tests.support.kafka import KafkaBroker
from tests.support.share_client import ShareClient, ShareMember
from tests.unit.net.harness import eventually

pytestmark = [pytest.mark.client, pytest.mark.java, pytest.mark.timeout(300)]

COMMAND = "consumer.group.ShareGroupCommand"
SETTINGS = {
    "node.id": 1,
    "offsets.topic.replication.factor": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    **KEEPS_WHAT_IS_OLD,
}
RECORDS = 10
# A host with its port, the number of bytes that a log line has, a moment.
OTHERS = re.compile(
    r"\[kafka-admin-client-thread .* \(/127\.0\.0\.1:\d+\) could not be established"
)
OWN = re.compile(r"\S+:\d+(?= +\(\d+\))|\d{4}-\d\d-\d\d[T ]\S+")


class Side(NamedTuple):
    bootstrap: str
    member: ShareMember  # of the group "live"


@pytest.fixture(scope="module")
def sides() -> Iterator[list[Side]]:
    with KafkaBroker(SETTINGS) as kafka, PlainBroker(SETTINGS) as ours:
        yield [Side(each, prepare(each)) for each in (kafka.bootstrap, ours.bootstrap)]


def create(client: ShareClient, name: str, partitions: int) -> None:
    table = messages.create_topics
    topic = table.Topic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    answer = client.ask(ApiKey.CREATE_TOPICS, 5, table.Request(topics=[topic], timeout_ms=30_000))
    assert answer.topics[0].error_code == 0

    def is_led() -> bool:
        table = messages.metadata
        found = client.ask(ApiKey.METADATA, 12, table.Request(topics=None)).topics
        return any(
            each.name == name
            and len(each.partitions) == partitions
            and all(p.leader_id == 1 and p.error_code == 0 for p in each.partitions)
            for each in found
        )

    eventually(is_led, "a topic is led")


def prepare(bootstrap: str) -> ShareMember:
    """Two topics with records; a group with a member, one that was left, one that read nothing."""
    with ShareClient(bootstrap) as client:
        for name, partitions in (("orders", 2), ("bills", 1)):
            create(client, name, partitions)
            for partition in range(partitions):
                client.produce(name, RECORDS, partition)
        eventually(client.is_coordinated, "groups have a coordinator")
    member = ShareMember(bootstrap, "live", "member-1")
    member.join("orders")
    left = ShareMember(bootstrap, "left", "member-2")
    left.join("orders")
    left.leave()
    bare = ShareMember(bootstrap, "bare", "member-3")
    bare.beat("missing")
    bare.leave()
    return member


@pytest.fixture
def both(tools: Tools, sides: list[Side]) -> Both:
    return Both(tools, sides)


class Both:
    """The tool at both brokers."""

    def __init__(self, tools: Tools, sides: list[Side]) -> None:
        self._tools = tools
        self._sides = sides

    def attempt(self, *arguments: str) -> list[tuple[int, list[list[str]]]]:
        """Status and words, line by line, of Apache Kafka and of ours."""
        found = []
        for bootstrap, member in self._sides:
            assert member.beat().error_code == 0
            ran = self._tools.attempt(COMMAND, "--bootstrap-server", bootstrap, *arguments)
            found.append(said(ran, bootstrap))
        return found

    def same(self, *arguments: str, status: int = 0) -> list[list[str]]:
        theirs, ours = self.attempt(*arguments)
        assert ours == theirs
        assert ours[0] == status, ours
        return ours[1]


def said(ran: Any, bootstrap: str) -> tuple[int, list[list[str]]]:
    """Without the log of a client that an earlier command left in the same JVM: its broker has
    gone."""
    text = (ran.stdout + ran.stderr).decode().replace(bootstrap, "BROKER")
    lines = [OWN.sub("OWN", line).split() for line in text.splitlines() if not OTHERS.match(line)]
    lines = [line for line in lines if line and line[0] != "at"]
    hide_epochs(lines)
    return ran.returncode, lines


def hide_epochs(lines: list[list[str]]) -> None:
    """Which of a line's epochs are equal, and not their numbers: on a busy machine the group that
    has a member was once at 4 here and at 3 there."""
    epochs: list[int] = []
    for line in lines:
        if line[0] == "GROUP":
            epochs = [at for at, title in enumerate(line) if title.endswith("EPOCH")]
        names: dict[str, str] = {}
        for at in epochs:
            if at < len(line) and line[at].isdigit():
                line[at] = names.setdefault(line[at], f"EPOCH {len(names)}")


def column(lines: list[list[str]], title: str) -> list[str]:
    at = lines[0].index(title)
    return [line[at] for line in lines[1:]]


def test_list(both: Both) -> None:
    assert {line[0] for line in both.same("--list")} == {"bare", "left", "live"}
    assert both.same("--list", "--state")
    assert len(both.same("--list", "--state", "Empty")) == 3
    both.same("--list", "--state", "Dead")
    both.same("--list", "--state", "none", status=1)


@pytest.mark.parametrize("more", [(), ("--verbose",)], ids=["", "verbose"])
@pytest.mark.parametrize("what", [(), ("--offsets",), ("--members",), ("--state",)], ids=str)
def test_describe(both: Both, what: tuple[str, ...], more: tuple[str, ...]) -> None:
    for group in ("live", "left", "bare"):
        both.same("--describe", "--group", group, *what, *more)
    both.same("--describe", "--all-groups", *what, *more)


def test_groups_that_are_not_there(both: Both) -> None:
    for words in (
        ("--describe",),
        ("--describe", "--members"),
        ("--describe", "--state"),
        ("--delete",),
        ("--delete-offsets", "--topic", "orders"),
        ("--reset-offsets", "--topic", "orders", "--to-latest", "--dry-run"),
    ):
        theirs, ours = both.attempt(*words, "--group", "none")
        assert ours == theirs, words


def test_groups_with_members_stay(both: Both) -> None:
    for words in (
        ("--delete",),
        ("--delete-offsets", "--topic", "orders"),
        ("--reset-offsets", "--topic", "orders", "--to-latest", "--execute"),
    ):
        theirs, ours = both.attempt(*words, "--group", "live")
        assert ours == theirs, words


def test_reset_delete_offsets_and_delete(both: Both) -> None:
    """One after the other: each finds what the one before has left."""
    left = ("--group", "left")

    def starts() -> dict[tuple[str, str], tuple[str, str]]:
        lines = both.same("--describe", *left)
        titles = ("TOPIC", "PARTITION", "START-OFFSET", "LAG")
        found = [column(lines, title) for title in titles]
        return {(t, p): (start, lag) for t, p, start, lag in zip(*found, strict=True)}

    reset = ("--reset-offsets", *left)
    both.same(*reset, "--topic", "orders", "--to-earliest", "--dry-run")
    assert set(starts().values()) == {("-", "-")}
    both.same(*reset, "--topic", "orders", "--to-earliest", "--execute")
    both.same(*reset, "--topic", "bills", "--to-latest", "--execute")
    assert starts() == {
        ("orders", "0"): ("0", "10"), ("orders", "1"): ("0", "10"), ("bills", "0"): ("10", "0"),
    }  # fmt: skip
    both.same(*reset, "--topic", "orders:1", "--to-latest", "--execute")
    both.same(*reset, "--all-topics", "--to-datetime", "1970-01-01T00:00:00.000", "--execute")
    both.same(*reset, "--topic", "missing", "--to-latest", "--execute")
    starts()
    # A group that is not there is made.
    both.same("--reset-offsets", "--group", "new", "--topic", "bills", "--to-earliest", "--execute")
    both.same("--describe", "--group", "new")
    both.same("--describe", "--group", "new", "--state", "--verbose")

    both.same("--delete-offsets", *left, "--topic", "bills")
    assert {topic for topic, _ in starts()} == {"orders"}
    both.same("--delete-offsets", *left, "--topic", "bills")
    both.same("--delete-offsets", *left, "--topic", "orders", "--topic", "missing")
    both.same("--describe", *left)

    both.same("--delete", *left, "--group", "new", "--group", "bare")
    assert {line[0] for line in both.same("--list")} == {"live"}
