"""`kbroker kafka-get-offsets` and others beside Apache Kafka's tools, at one broker.

As test_kafka_tools.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from kbroker.testing import Broker
from tests.clients.agents.pair import Ended, Pair
from tests.clients.agents.tools import Tools

pytestmark = [pytest.mark.client, pytest.mark.java]

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Not that of all tests: what a tool prints of every topic or group is to stay as it is."""
    with Broker(topics={"orders": 3, "two": 2}) as started:
        producer = Producer({"bootstrap.servers": started.bootstrap})
        for number in range(7):
            producer.produce("orders", b"v", partition=number % 2, timestamp=1000 * (1 + number))
        producer.flush(TIMEOUT_S)
        yield started


class Limited(NamedTuple):
    """Both tools as a user with few rights, and the arguments of each call."""

    tools: Tools
    bootstrap: str
    login: tuple[str, str]

    def both(self, tool: tuple[str, str], *arguments: str) -> Ended:
        return Pair(self.tools, self.bootstrap, *tool).both(*self.login, *arguments)


@pytest.fixture(scope="module")
def limited(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    """She may describe `seen` and `named`, the settings of `seen`, and not the cluster."""
    acls = ["eve Describe topic:seen", "eve DescribeConfigs topic:seen", "eve Describe topic:named",
            "eve Describe group:g1"]  # fmt: skip
    topics = {"seen": 1, "named": 2, "hidden": 1}
    with Broker(topics=topics, users={"eve": "secret"}, acls=acls) as broker:
        file = tmp_path_factory.mktemp("login") / "client.properties"
        lines = [f"{name}={value}\n" for name, value in broker.java_settings("eve").items()]
        file.write_text("".join(lines))
        file.chmod(0o600)
        yield Limited(tools, broker.bootstrap, ("--command-config", str(file)))


# --- kafka-get-offsets ----------------------------------------------------------------------------

OFFSETS = ("GetOffsetShell", "kafka-get-offsets")


@pytest.fixture
def offsets(tools: Tools, broker: Broker) -> Pair:
    return Pair(tools, broker.bootstrap, *OFFSETS)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ((), 5),
        (("--topic", "orders"), 3),
        (("--topic", "'nope, or.*'"), 3),
        (("--topic", "orders", "--partitions", "0,2,9", "word"), 2),
        (("--topic-partitions", "orders:0-2,two"), 4),
        (("--topic-partitions", "orders:2-,two:-1,:0,or.*"), 4),
        (("--topic-partitions", "or(ders|x):1"), 1),
        (("--exclude-internal-topics",), 5),
        (("--time", "latest"), 5),
        (("--time=earliest", "--topic", "orders"), 3),
        (("--time", "max-timestamp"), 2),
        (("--time", "-3", "--topic", "two"), 0),
        (("--time", "earliest-local"), 5),
        (("--time", "latest-tiered"), 0),
        (("--time", "earliest-pending-upload"), 0),
        (("--time", "3001", "--topic", "orders"), 2),
        (("--time", "-9"), 0),
    ],
)
def test_offsets(offsets: Pair, arguments: tuple[str, ...], count: int) -> None:
    ended = offsets.both(*arguments)
    assert ended.status == 0 and ended.output.count("\n") == count


@pytest.mark.parametrize(
    "arguments",
    [
        ("--time", "LATEST"),
        ("--time", "9" * 20),
        ("--time",),
        ("--topic", "nope"),
        ("--topic", ""),
        ("--topic", "("),
        ("--topic", "a", "--topic", "orders"),
        ("--topic", "a", "--topic-partitions", "a"),
        ("--partitions", "1, 2"),
        ("--partitions", "9" * 11),
        ("--topic-partitions", "orders:a"),
        ("--topic-partitions", "orders:" + "9" * 11),
        ("--topic-partitions", "nope"),
        ("--broker-list", "x"),
    ],
)
def test_offsets_that_cannot_be_asked_for(offsets: Pair, arguments: tuple[str, ...]) -> None:
    assert offsets.both(*arguments).status == 1


def test_offsets_of_no_broker(offsets: Pair) -> None:
    assert offsets.both("--topic", "orders", bootstrap=False).status == 1


def test_offsets_for_a_user_with_few_rights(limited: Limited) -> None:
    assert limited.both(OFFSETS).output == "named:0:0\nnamed:1:0\nseen:0:0\n"
    assert limited.both(OFFSETS, "--topic", "hidden").status == 1
