"""What Produce and Fetch do where there is an authorizer, through the network: verdicts in C."""

from __future__ import annotations

import logging
import uuid
from typing import Any, Final

import pytest

from kbroker._net import WrappedRequest
from kbroker.clock import ManualClock
from kbroker.engine._hot_verdicts import HotVerdicts
from kbroker.errors import ErrorCode, InvariantError
from kbroker.security.acls import Acl, Entry, Pattern, PatternType, Permission
from kbroker.security.authorizer import AclAuthorizer, Rules
from kbroker.security.denials import Denials
from kbroker.security.rights import CLUSTER_NAME, Operation, ResourceType
from kbroker.security.session import ANONYMOUS
from kbroker.server.hot_rights import REASON, HotRights
from tests.support.acls import acl_set
from tests.support.record_batches import build_batch
from tests.unit.engine.test_follower_fetches import ONE, follow, lead
from tests.unit.engine.test_sessions import Session, append
from tests.unit.engine.transactional import ID, Coordinator, batch
from tests.unit.engine.wire import (
    FETCH_BY_ID,
    FETCH_VERSIONS,
    PRODUCE_BY_ID,
    PRODUCE_VERSIONS,
    SESSION_VERSIONS,
    Ask,
    fetch,
    fetch_frame,
    fetched_in,
    produce,
    produce_frame,
    produce_one,
    produced_in,
)
from tests.unit.net.harness import Rig, Topic, eventually

DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
LONG_MS: Final = 600_000
BATCH: Final = build_batch([b"x" * 100])
LETTERS: Final = {
    "T": ResourceType.TOPIC, "C": ResourceType.CLUSTER, "X": ResourceType.TRANSACTIONAL_ID,
}  # fmt: skip
every_produce = pytest.mark.parametrize("version", PRODUCE_VERSIONS)
every_fetch = pytest.mark.parametrize("version", FETCH_VERSIONS)


def acl(words: str, permission: Permission = Permission.ALLOW) -> Acl:
    """Of "WRITE T t", or of "WRITE T t 127.0.0.2" for one host."""
    operation, letter, name, host = [*words.split(), "*"][:4]
    pattern = Pattern(LETTERS[letter], PatternType.LITERAL, name)
    return Acl(pattern, Entry("User:ANONYMOUS", host, Operation[operation], permission))


class Access:
    """The authorizer of a rig: its ACLs, and how many requests have come to it."""

    def __init__(self, rig: Rig, sets: int = 64) -> None:
        self.acls = acl_set([])
        self.came = 0
        self.fails = False
        self.denials = Denials(ManualClock())
        authorizer = AclAuthorizer(Rules(), self._acls, self.denials)
        self.verdicts = HotVerdicts(rig.hot, sets)
        self.rights = HotRights(rig.hot, self.verdicts, authorizer)
        decide = self.rights.before(rig.dispatch)

        def dispatch(request: WrappedRequest) -> None:
            self.came += request.reason == REASON
            decide(request)

        rig.dispatch = dispatch

    def _acls(self) -> Any:
        if self.fails:
            raise MemoryError
        return self.acls

    def are(self, *words: str) -> None:
        """These rights, and no others."""
        self.acls = acl_set(acl(each) for each in words)
        self.rights.forget()


@pytest.fixture
def access(rig: Rig) -> Access:
    return Access(rig)


def ends(topic: Topic) -> list[int]:
    return [log.log_end_offset for log in topic.logs]


# --- Produce --------------------------------------------------------------------------------------


@every_produce
def test_clients_with_the_right_write_a_topic(rig: Rig, access: Access, version: int) -> None:
    mine, other = rig.create("mine"), rig.create("other")
    access.are("WRITE T mine")
    for _ in range(3):
        answer = produce(rig.client(), version, [(mine, {0: BATCH}), (other, {0: BATCH})])
        assert [each.error for each in answer.values()] == [0, DENIED]
    assert (ends(mine), ends(other)) == ([3], [0])
    assert access.came == 1, "Python decides once"


@every_produce
def test_a_right_that_goes_or_comes_counts_for_the_next_request(
    rig: Rig, access: Access, version: int
) -> None:
    topic, client = rig.create("t"), rig.client()
    for words, error in (([], DENIED), (["WRITE T t"], 0), (["READ T t"], DENIED)):
        access.are(*words)
        assert produce_one(client, topic, BATCH, version=version).error == error
    assert ends(topic) == [1]
    assert access.came == 3


@pytest.mark.parametrize("version", [9, PRODUCE_BY_ID])
def test_a_denied_produce_does_not_show_which_topics_exist(
    rig: Rig, access: Access, version: int
) -> None:
    there, gone = rig.create("there"), Topic("gone", uuid.uuid4(), [])
    broken = BATCH[:-1] + b"?"
    answer = produce(rig.client(), version, [(there, {0: broken, 7: BATCH}), (gone, {0: BATCH})])
    # An id that is not known has no name that could be asked for.
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= PRODUCE_BY_ID else DENIED
    assert [each.error for each in answer.values()] == [DENIED, DENIED, unknown]


@every_produce
def test_without_an_acknowledgement_the_connection_ends(
    rig: Rig, access: Access, version: int
) -> None:
    topic, client = rig.create("t"), rig.client()
    client.send(produce_frame(version, [(topic, {0: BATCH})], acks=0))
    assert client.ended()
    assert ends(topic) == [0]


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_topic_without_partitions_is_not_asked_for(
    rig: Rig, access: Access, version: int
) -> None:
    topic, other = rig.create("t"), rig.create("u")
    access.are("WRITE T t")
    answer = produce(rig.client(), version, [(other, {}), (topic, {0: BATCH}), (other, {})])
    assert [each.error for each in answer.values()] == [0]


def test_each_frame_of_a_train_has_its_own_verdicts(rig: Rig, access: Access) -> None:
    mine, other = rig.create("mine"), rig.create("other")
    access.are("WRITE T mine")
    client = rig.client()
    topics = [mine, other, mine, mine]
    client.send(
        b"".join(
            produce_frame(9, [(topic, {0: BATCH})], correlation_id=number)
            for number, topic in enumerate(topics)
        )
    )
    for number, topic in enumerate(topics):
        correlation_id, answer = produced_in(9, client.receive())
        (result,) = answer.values()
        assert (correlation_id, result.error) == (number, 0 if topic is mine else DENIED)


@every_produce
def test_transactions_need_a_right_to_their_id(
    rig: Rig, access: Access, coordinator: Coordinator, version: int
) -> None:
    topic, client = rig.create("t"), rig.client()
    access.are("WRITE T t", "DESCRIBE X x")
    options: dict[str, Any] = {"version": version, "transactional_id": ID}
    refused = produce_one(client, topic, batch(), **options)
    assert refused.error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert not coordinator.asked
    # Records that are of no transaction need none, whatever id the request names.
    assert produce_one(client, topic, BATCH, **options).error == 0
    access.are("WRITE T t", "WRITE X x")
    client.send(produce_frame(version, [(topic, {0: batch()})], transactional_id=ID))
    coordinator.next().answer()
    (result,) = produced_in(version, client.receive())[1].values()
    assert result.error == 0
    assert ends(topic) == [3]


def test_a_right_that_goes_while_the_coordinator_is_asked_is_missing(
    rig: Rig, access: Access, coordinator: Coordinator
) -> None:
    topic, client = rig.create("t"), rig.client()
    access.are("WRITE T t", "WRITE X x")
    client.send(produce_frame(9, [(topic, {0: batch()})], transactional_id=ID))
    asked = coordinator.next()
    access.are("WRITE X x")
    asked.answer()
    (result,) = produced_in(9, client.receive())[1].values()
    assert (result.error, ends(topic)) == (DENIED, [0])


def test_a_long_transactional_id_is_decided_for_each_request(
    rig: Rig, access: Access, coordinator: Coordinator
) -> None:
    """No place is long enough for it."""
    topic, client = rig.create("t"), rig.client()
    access.are("WRITE T t")
    for times in (1, 2):
        answer = produce_one(client, topic, batch(), transactional_id="x" * 300)
        assert answer.error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert access.came == times


@pytest.mark.parametrize("codec", ["lz4", "none"])
def test_a_produce_in_python_keeps_its_verdicts(rig: Rig, access: Access, codec: str) -> None:
    """The topic wants another codec, so the request goes to Python for that as well."""
    mine, other = rig.create("mine", stored_codec=1), rig.create("other")
    access.are("WRITE T mine")
    kept: list[WrappedRequest] = []
    inner, rig.dispatch = rig.dispatch, lambda r: kept.append(r) if r.reason != REASON else inner(r)
    client = rig.client()
    data = build_batch([b"x" * 100], codec=codec)
    client.send(produce_frame(9, [(mine, {0: data}), (other, {0: data})]))
    eventually(lambda: kept, "it goes to Python")
    access.are()  # the verdicts of this request remain
    assert [entry[0] for entry in rig.hot.produce_batches(kept[0])] == [0]
    kept[0].close_connection()


# --- Fetch ----------------------------------------------------------------------------------------


@every_fetch
def test_clients_with_the_right_read_a_topic(rig: Rig, access: Access, version: int) -> None:
    mine, other = rig.create("mine"), rig.create("other")
    append(mine)
    append(other)
    access.are("READ T mine")
    client = rig.client()
    for _ in range(3):
        answer = fetch(client, version, [Ask(other), Ask(mine), Ask(mine, 7)])
        found = {index: each for (_, index), each in answer.partitions.items() if not each.error}
        assert [bool(each.records) for each in found.values()] == [True]
        errors = sorted(each.error for each in answer.partitions.values())
        assert errors == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, DENIED]
    assert access.came == 1


@pytest.mark.parametrize("version", [12, FETCH_BY_ID])
def test_a_denied_fetch_does_not_show_which_topics_exist(
    rig: Rig, access: Access, version: int
) -> None:
    there, gone = rig.create("there"), Topic("gone", uuid.uuid4(), [])
    answer = fetch(rig.client(), version, [Ask(there), Ask(there, 7), Ask(gone)], max_wait_ms=1)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= FETCH_BY_ID else DENIED
    errors = sorted(each.error for each in answer.partitions.values())
    assert errors == sorted([DENIED, DENIED, unknown])
    assert {each.high_watermark for each in answer.partitions.values()} == {-1}


@pytest.mark.parametrize("version", SESSION_VERSIONS)
def test_a_session_is_no_right(rig: Rig, access: Access, version: int) -> None:
    topic = rig.create("t", partitions=2)
    append(topic)
    access.are("READ T t")
    session = Session(rig.client(), version, [Ask(topic), Ask(topic, 1)])
    assert [each.error for each in session.first.partitions.values()] == [0, 0]
    access.are()
    gone = session.next(max_wait_ms=0)
    assert [each.error for each in gone.partitions.values()] == [DENIED, DENIED]
    assert not any(each.records for each in gone.partitions.values())
    access.are("READ T t")
    back = session.next(max_wait_ms=0)
    assert [each.error for each in back.partitions.values()] == [0, 0]
    assert [bool(each.records) for each in back.partitions.values()] == [True, False]


@pytest.mark.parametrize("version", [7, 13])
def test_a_topic_that_joins_a_session_is_asked_for(rig: Rig, access: Access, version: int) -> None:
    mine, other = rig.create("mine"), rig.create("other")
    append(mine)
    append(other)
    access.are("READ T mine")
    session = Session(rig.client(), version, [Ask(mine)])
    joined = session.next(Ask(other))
    assert sorted(each.error for each in joined.partitions.values()) == [0, DENIED]


def test_denied_partitions_do_not_keep_a_fetch_from_waiting(rig: Rig, access: Access) -> None:
    mine, other = rig.create("mine"), rig.create("other")
    access.are("READ T mine", "WRITE T mine")
    reader = rig.client()
    reader.send(fetch_frame(12, [Ask(other), Ask(mine)], max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    assert produce_one(rig.client(), mine, BATCH).error == 0
    answer = fetched_in(12, reader.receive())
    assert {key[0]: each.error for key, each in answer.partitions.items()} == {
        "mine": 0, "other": DENIED,
    }  # fmt: skip


@pytest.mark.parametrize("version", [4, 12, 13])
def test_a_right_that_goes_while_a_fetch_waits_is_missing_at_its_end(
    rig: Rig, access: Access, version: int
) -> None:
    topic = rig.create("t")
    access.are("READ T t", "WRITE T t")
    reader, writer = rig.client(), rig.client()
    reader.send(fetch_frame(version, [Ask(topic)], max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    access.are("WRITE T t")
    assert produce_one(writer, topic, BATCH).error == 0
    answer = fetched_in(version, reader.receive())
    assert (answer.only.error, answer.only.records) == (DENIED, b"")


def test_a_deadline_after_a_change_asks_python_once_more(rig: Rig, access: Access) -> None:
    """The thread of the deadline goes to no authorizer: the fetch is queued for a handler."""
    topic, reader = rig.create("t"), rig.client()
    access.are("READ T t")
    reader.send(fetch_frame(12, [Ask(topic)], max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    access.are("READ T t")
    rig.expire_all(reader)
    assert fetched_in(12, reader.receive()).only.error == 0
    assert access.came == 2


@every_fetch
def test_a_follower_needs_the_right(rig: Rig, access: Access, version: int) -> None:
    topic = rig.create("t")
    lead(topic)
    topic.logs[0].append(BATCH)
    access.are("READ T t", "WRITE T t")
    for _ in range(2):
        assert follow(rig, topic, ONE, 1, version).error == DENIED
    assert topic.logs[0].high_watermark == 0
    assert access.came == 1
    access.are(f"CLUSTER_ACTION C {CLUSTER_NAME}")
    assert follow(rig, topic, ONE, 1, version).error == 0


def test_a_fetch_on_a_network_thread_comes_to_python_once(rig: Rig, access: Access) -> None:
    """It is served without a handler where all verdicts are known."""
    topic, client = rig.create("t"), rig.client()
    append(topic)
    access.are("READ T t")
    for _ in range(20):
        assert fetch(client, 12, [Ask(topic)]).only.records
    assert access.came == 1


# --- what is kept ---------------------------------------------------------------------------------


def test_a_verdict_is_of_one_host(rig: Rig, access: Access) -> None:
    topic = rig.create("t")
    access.are("WRITE T t 127.0.0.2")
    for host, error in (("127.0.0.2", 0), ("127.0.0.3", DENIED), ("127.0.0.2", 0)):
        assert produce_one(rig.client(host=host), topic, BATCH).error == error
    assert access.came == 2


def test_more_resources_than_there_are_places(rig: Rig) -> None:
    """Each request comes to Python once, and is served."""
    access = Access(rig, sets=1)
    topics = [rig.create(f"t{number}") for number in range(30)]
    access.are(*(f"WRITE T t{number}" for number in range(0, 30, 2)))
    client = rig.client()
    for times in (1, 2, 3):
        answer = produce(client, 9, [(topic, {0: BATCH}) for topic in topics])
        assert [each.error for each in answer.values()] == [0, DENIED] * 15
        assert access.came == times


def test_more_topics_of_a_session_than_there_are_places(rig: Rig) -> None:
    access = Access(rig, sets=1)
    topics = [rig.create(f"t{number}") for number in range(30)]
    access.are(*(f"READ T t{number}" for number in range(30)))
    session = Session(rig.client(), 13, [Ask(topic) for topic in topics])
    assert {each.error for each in session.first.partitions.values()} == {0}
    append(topics[7])
    assert [each.error for each in session.next().partitions.values()] == [0]


def test_names_that_are_made_up_drive_out_no_verdict_in_use(rig: Rig) -> None:
    access = Access(rig, sets=1)
    topics = [rig.create(f"t{number}") for number in range(4)]
    access.are(*(f"WRITE T t{number}" for number in range(4)))
    client, stranger = rig.client(), rig.client()

    def write() -> None:
        for topic in topics:
            assert produce_one(client, topic, BATCH).error == 0

    write()
    write()
    assert access.came == 4
    for number in range(50):
        gone = Topic(f"made-up-{number}", uuid.uuid4(), [])
        assert produce_one(stranger, gone, BATCH).error == DENIED
    write()
    assert access.came == 54


def test_an_authorizer_that_fails_ends_the_connection(rig: Rig, access: Access) -> None:
    topic, client = rig.create("t"), rig.client()
    access.are("WRITE T t")
    access.fails = True
    client.send(produce_frame(9, [(topic, {0: BATCH})]))
    assert client.ended()
    access.fails = False
    assert produce_one(rig.client(), topic, BATCH).error == 0
    assert ends(topic) == [1]


def test_denials_in_c_are_counted_in_the_log(
    rig: Rig, access: Access, caplog: pytest.LogCaptureFixture
) -> None:
    topic, client = rig.create("t"), rig.client()
    with caplog.at_level(logging.INFO, "kbroker.authorizer"):
        for _ in range(5):
            assert produce_one(client, topic, BATCH).error == DENIED
        assert len(caplog.records) == 1
        access.rights.write()
        clock: Any = access.denials._clock
        clock.advance(10_000)
        access.denials.write()
    line = (
        "Principal = User:ANONYMOUS is Denied operation = WRITE from host = 127.0.0.1 on "
        "resource = Topic:LITERAL:t for request = Produce with resourceRefCount = 1 based on "
        "rule DefaultDeny"
    )
    assert caplog.messages[0] == line
    assert caplog.messages[1].startswith(f"{line} (4 times, from ")


def test_rights_that_python_allows_are_kept(rig: Rig, access: Access) -> None:
    topic = rig.create("t")
    verdicts = access.verdicts
    for host, name in (("127.0.0.1", "t"), ("::1", "t"), ("127.0.0.1", "u")):
        place, number, times = verdicts.allow(
            ANONYMOUS, host, verdicts.generation, Operation.WRITE, ResourceType.TOPIC, name
        )
        assert (place >= 0, number, times) == (True, 0, 0)
    assert produce_one(rig.client(), topic, BATCH).error == 0
    assert access.came == 0
    old = verdicts.generation
    access.are()
    assert verdicts.allow(ANONYMOUS, "::1", old, 4, 2, "t")[0] == -1, "the ACLs have changed"


def test_a_hot_path_has_verdicts_once(rig: Rig, access: Access) -> None:
    with pytest.raises(InvariantError):
        HotVerdicts(rig.hot, 4)
    for sets in (0, 3, -4):
        with pytest.raises(ValueError, match="power of two"):
            HotVerdicts(rig.hot, sets)
    assert access.verdicts.take_denials(0, 1) == -1
    with pytest.raises(InvariantError):
        access.verdicts.take_denials(1 << 40, 1)
