"""Apache Kafka 4.3.0's Java share consumer and the tools of share groups, unchanged.

A broker of their own, whose locks may be short. Each test ends with a record that comes after all
others: what is not delivered before it is not available.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kbroker.testing.process import ServerProcess
from tests.clients import adapters
from tests.clients.adapters import Confluent, Record
from tests.clients.agents import programs
from tests.clients.agents.driver import Agent
from tests.clients.agents.sharers import Shared, Sharer
from tests.clients.agents.tools import Tool, Tools
from tests.support import servers

pytestmark = [pytest.mark.client, pytest.mark.java, pytest.mark.timeout(240)]

JAVA = next(each for each in programs.LIBRARIES if each.name == "java")
EXPLICIT = {"share.acknowledgement.mode": "explicit"}
LAST = b"the last one"
LOCK_MS = 1_000
SETTINGS = {
    "group.share.min.record.lock.duration.ms": LOCK_MS,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[ServerProcess]:
    with servers.make(SETTINGS) as broker:
        yield broker
        servers.assert_nothing_unexpected(broker)


@pytest.fixture(scope="module")
def start(
    broker: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Agent]]:
    """One more program for members."""
    with ExitStack() as stack:
        log = stack.enter_context((tmp_path_factory.mktemp("agents") / "log").open("wb"))
        yield lambda: stack.enter_context(programs.agent(JAVA, broker.bootstrap, log))


@pytest.fixture(scope="module")
def agent(start: Callable[[], Agent]) -> Agent:
    return start()


class Share:
    """A topic, and a group that begins at its start."""

    def __init__(self, bootstrap: str, tool: Tool, agent: Agent) -> None:
        number = next(_NUMBERS)
        self.topic, self.group = f"orders-{number}", f"workers-{number}"
        self._bootstrap, self._tool, self._agent = bootstrap, tool, agent
        adapters.Admin(bootstrap, settle=servers.reference()).create(self.topic, 1)
        self.set(share__auto__offset__reset="earliest")

    def set(self, **configs: object) -> None:
        """Of the group; __ for a dot."""
        texts = (f"{key.replace('__', '.')}={value}" for key, value in configs.items())
        self._tool.run(
            "kafka.admin.ConfigCommand", "--alter", "--entity-type", "groups", "--entity-name",
            self.group, "--add-config", ",".join(texts),
        )  # fmt: skip

    def produce(self, *values: bytes) -> None:
        Confluent(self._bootstrap).produce(self.topic, [Record(each) for each in values])

    def member(self, agent: Agent | None = None, **configs: object) -> Sharer:
        texts = {key.replace("__", "."): value for key, value in configs.items()}
        name = f"sharer-{next(_NUMBERS)}"
        return Sharer(agent or self._agent, name, self.group, [self.topic], texts)

    def assert_nothing_is_left(self) -> None:
        self.produce(LAST)
        member = self.member()
        assert values(member.poll()) == [LAST]
        assert values(member.poll(300)) == []
        member.close()


def values(records: list[Shared]) -> list[bytes | None]:
    return [each.value for each in records]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.fixture
def share(broker: ServerProcess, tools: Tools, agent: Agent) -> Share:
    return Share(broker.bootstrap, Tool(tools, broker.bootstrap), agent)


def test_the_next_poll_accepts(share: Share) -> None:
    share.produce(*numbers(10))
    member = share.member()
    found = member.poll()
    assert values(found) == numbers(10)
    assert {each.deliveries for each in found} == {1}
    assert member.lock_ms() == 30_000
    share.produce(b"more")
    assert values(member.poll()) == [b"more"]
    assert set(member.sync().values()) == {None}  # accepts that one
    member.close()
    share.assert_nothing_is_left()


def test_records_are_accepted_released_and_rejected(share: Share) -> None:
    share.produce(*numbers(10))
    member = share.member(share__acknowledgement__mode="explicit")
    found = member.poll()
    assert values(found) == numbers(10)
    member.acknowledge("ACCEPT", found[:3])
    member.acknowledge("RELEASE", found[3:6])
    member.acknowledge("REJECT", found[6:8])
    member.acknowledge("ACCEPT", found[8:])
    assert set(member.sync().values()) == {None}
    again = member.poll()
    assert [(each.value, each.deliveries) for each in again] == [(b"3", 2), (b"4", 2), (b"5", 2)]
    member.acknowledge("ACCEPT", again)
    assert set(member.sync().values()) == {None}
    member.close()
    share.assert_nothing_is_left()


def test_records_that_are_given_up_go_to_the_dead_letter_topic(
    share: Share, broker: ServerProcess
) -> None:
    if servers.reference():
        pytest.skip("Apache Kafka 4.3 has no dead letters")
    dead = f"dlq.{share.group}"
    allowed = {"errors.deadletterqueue.group.enable": "true"}
    adapters.Admin(broker.bootstrap).create(dead, configs=allowed)
    share.set(
        errors__deadletterqueue__topic__name=dead,
        errors__deadletterqueue__copy__record__enable="true",
        share__delivery__count__limit=2,
    )
    share.produce(*numbers(3))
    member = share.member(share__acknowledgement__mode="explicit")
    found = member.poll()
    member.acknowledge("REJECT", found[:1])
    member.acknowledge("RELEASE", found[1:2])
    member.acknowledge("ACCEPT", found[2:])
    assert set(member.sync().values()) == {None}
    again = member.poll()
    assert [(each.value, each.deliveries) for each in again] == [(b"1", 2)]
    member.acknowledge("RELEASE", again)
    assert set(member.sync().values()) == {None}
    copies = list(Confluent(broker.bootstrap).consume(dead, 2))
    headers = [dict(each.headers) for each in copies]
    assert [each.value for each in copies] == [b"0", b"1"]
    assert [each["__dlq.errors.offset"] for each in headers] == [b"0", b"1"]
    assert [each["__dlq.errors.delivery.count"] for each in headers] == [b"1", b"2"]
    assert [each["kb-dead-letter-reason"] for each in headers] == [b"rejected", b"released"]
    member.close()
    share.assert_nothing_is_left()


def test_records_have_times(share: Share, broker: ServerProcess) -> None:
    if servers.reference():
        pytest.skip("Apache Kafka 4.3 does not heed times of records")
    share.set(kb__share__record__times__enable="true")
    now_ms = time.time_ns() // 1_000_000
    scheduled = (("kb-deliver-at", b"%d" % (now_ms + 2_000)),)
    expired = (("kb-expires-at", b"%d" % (now_ms - 1)),)
    records = [Record(b"later", headers=scheduled), Record(b"never", headers=expired)]
    Confluent(broker.bootstrap).produce(share.topic, [*records, Record(b"now")])
    member = share.member()
    first = member.poll()
    if values(first) == [b"now"]:  # unless the member has taken two seconds to begin
        first += member.poll()
        assert time.time_ns() // 1_000_000 >= now_ms + 2_000
    assert {each.value for each in first} == {b"now", b"later"}
    assert {each.deliveries for each in first} == {1}
    assert set(member.sync().values()) == {None}
    member.close()
    share.assert_nothing_is_left()


def test_records_without_an_acknowledgement_are_released_at_the_end(share: Share) -> None:
    share.produce(*numbers(4))
    first = share.member(share__acknowledgement__mode="explicit")
    found = first.poll()
    first.acknowledge("ACCEPT", found[:1])
    first.close()
    second = share.member()
    again = second.poll()
    assert [(each.value, each.deliveries) for each in again] == [(b"1", 2), (b"2", 2), (b"3", 2)]
    second.sync()
    second.close()
    share.assert_nothing_is_left()


def test_a_lock_is_renewed(share: Share) -> None:
    """Twice as long as it lasts; another member gets nothing. Each time the client has it again."""
    share.set(share__record__lock__duration__ms=LOCK_MS)
    share.produce(b"slow")
    slow = share.member(share__acknowledgement__mode="explicit")
    found = slow.poll()
    assert (values(found), slow.lock_ms()) == ([b"slow"], LOCK_MS)
    other = share.member()
    for _ in range(4):
        slow.acknowledge("RENEW", found)
        assert set(slow.sync().values()) == {None}
        found = slow.poll()
        assert [(each.value, each.deliveries) for each in found] == [(b"slow", 1)]
        assert other.poll(LOCK_MS // 2) == []
    slow.acknowledge("ACCEPT", found)
    assert set(slow.sync().values()) == {None}
    slow.close()
    other.close()
    share.assert_nothing_is_left()


def test_a_lock_runs_out(share: Share) -> None:
    share.set(share__record__lock__duration__ms=LOCK_MS)
    share.produce(b"slow")
    slow = share.member(share__acknowledgement__mode="explicit")
    found = slow.poll()
    other = share.member()
    again = other.poll()
    assert [(each.value, each.deliveries) for each in again] == [(b"slow", 2)]
    slow.acknowledge("ACCEPT", found)
    assert set(slow.sync().values()) == {"InvalidRecordStateException"}
    other.sync()
    other.close()
    slow.close()
    share.assert_nothing_is_left()


def test_a_poison_record_among_others(share: Share) -> None:
    """A member that meets it gives back all that it has. The others are accepted nevertheless."""
    wanted = [b"poison" if number == 123 else b"%d" % number for number in range(200)]
    share.produce(*wanted)
    member = share.member(share__acknowledgement__mode="explicit")
    accepted: list[bytes | None] = []
    poisoned: list[tuple[int, int]] = []  # deliveries, records beside it
    while len(accepted) < len(wanted) - 1:
        found = member.poll()
        assert found, f"{len(accepted)} of {len(wanted)} records"
        with_it = [each for each in found if each.value == b"poison"]
        poisoned += [(each.deliveries, len(found)) for each in with_it]
        member.acknowledge("RELEASE" if with_it else "ACCEPT", found)
        assert set(member.sync().values()) == {None}
        accepted += [] if with_it else values(found)
    while with_it := member.poll(500):
        poisoned += [(each.deliveries, len(with_it)) for each in with_it]
        member.acknowledge("RELEASE", with_it)
        assert set(member.sync().values()) == {None}
    member.close()
    assert sorted(map(str, accepted)) == sorted(str(each) for each in wanted if each != b"poison")
    assert [deliveries for deliveries, _ in poisoned] == [1, 2, 3, 4, 5]
    assert poisoned[-1] == (5, 1)
    share.assert_nothing_is_left()


def test_a_member_that_is_killed(share: Share, start: Callable[[], Agent]) -> None:
    """Its connection ends, and another one has its records at once."""
    share.produce(*numbers(10))
    program = start()
    lost = share.member(program, share__acknowledgement__mode="explicit")
    found = lost.poll()
    lost.acknowledge("ACCEPT", found[:4])
    assert set(lost.sync().values()) == {None}
    program.kill()
    member = share.member()
    again = member.poll()
    assert [(each.value, each.deliveries) for each in again] == [
        (b"%d" % number, 2) for number in range(4, 10)
    ]
    member.sync()
    member.close()
    share.assert_nothing_is_left()


def test_several_members_share_a_partition(share: Share) -> None:
    """A record limit leaves some for the others (KIP-1206)."""
    share.produce(*numbers(10))
    limit = {"share__acquire__mode": "record_limit", "max__poll__records": 4}
    members = [share.member(share__acknowledgement__mode="explicit", **limit) for _ in range(3)]
    found = [member.poll() for member in members]
    assert sorted(map(len, found)) == [2, 4, 4]
    assert sorted(each.value or b"" for part in found for each in part) == numbers(10)
    for member, part in zip(members, found, strict=True):
        member.acknowledge("ACCEPT", part)
        assert set(member.sync().values()) == {None}
        member.close()
    share.assert_nothing_is_left()


def test_console_share_consumer(share: Share, tools: Tools, broker: ServerProcess) -> None:
    tool = Tool(tools, broker.bootstrap)
    share.produce(*numbers(5))
    read = tool.run(
        "consumer.ConsoleShareConsumer", "--topic", share.topic, "--group", share.group,
        "--max-messages", "5", "--formatter-property", "print.delivery=true",
    )  # fmt: skip
    assert read.splitlines() == [f"Delivery:1\t{number}" for number in range(5)]
    share.produce(b"bad")
    for kind in ("--release", "--reject"):
        read = tool.run(
            "consumer.ConsoleShareConsumer", "--topic", share.topic, "--group", share.group,
            "--max-messages", "1", kind,
        )  # fmt: skip
        assert read.split() == ["bad"]
    share.assert_nothing_is_left()


def test_share_consumer_performance(share: Share, tools: Tools, broker: ServerProcess) -> None:
    Confluent(broker.bootstrap).produce(share.topic, [Record(b"x" * 100)] * 5000)
    output = Tool(tools, broker.bootstrap).run(
        "ShareConsumerPerformance", "--topic", share.topic, "--group", share.group,
        "--num-records", "5000", "--timeout", "60000",
    )  # fmt: skip
    header, figures = (line.split(", ") for line in output.strip().splitlines()[-2:])
    assert dict(zip(header, figures, strict=True))["data.consumed.in.nMsg"] == "5000"
    share.assert_nothing_is_left()
