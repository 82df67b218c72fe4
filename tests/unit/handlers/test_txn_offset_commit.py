"""TxnOffsetCommit, versions 0 to 5: errors of one partition, of all of them, and their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from kbroker.coordinator.group._groups import CommittedOffset
from kbroker.coordinator.group.seams import Committer
from kbroker.coordinator.runtime._shard_table import Written
from kbroker.errors import ErrorCode
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import new_uuid
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, answer_of, part_of, request_of, written

KEY = ApiKey.TXN_OFFSET_COMMIT
VERSIONS = range(6)
SINCE_MEMBER = 3
PARTITIONS = 50


@dataclass
class Offsets:
    """A table that notes what is written."""

    partition_count: int = PARTITIONS
    codes: list[ErrorCode] = field(default_factory=list)
    replicated: ErrorCode = ErrorCode.NONE
    commits: list[tuple[Any, ...]] = field(default_factory=list)

    def commit_in_transaction(
        self,
        group_id: str,
        offsets: list[CommittedOffset],
        producer_id: int,
        producer_epoch: int,
        written: Written,
        committer: Committer,
        guard: int,
    ) -> int:
        self.commits.append((group_id, offsets, producer_id, producer_epoch, committer, guard))
        return self.codes.pop(0) if self.codes else ErrorCode.NONE

    def when_replicated(
        self, written: Written, code: int, done: Callable[[ErrorCode], object]
    ) -> None:
        done(ErrorCode(code or self.replicated))


@dataclass
class Verifier:
    code: ErrorCode = ErrorCode.NONE
    guard: int = 5
    asked: list[tuple[int, str, int, int, int]] = field(default_factory=list)

    def __call__(self, *what: Any) -> None:
        *asked, done = what
        self.asked.append(tuple(asked))
        done(self.code, self.guard)


@pytest.fixture
def broker() -> FakeBroker:
    made = FakeBroker()
    topic = new_topic_image("t", new_uuid(), [(1,)] * 2, {})
    made.controller.publish(made.controller.image.with_topics([topic]))
    made.services.offsets = Offsets()  # type: ignore[assignment]
    return made


def offsets_of(broker: FakeBroker) -> Offsets:
    found: Any = broker.services.offsets
    return found


def ask(version: int, *partitions: int, topic: str = "t", text: str = "", **fields: Any) -> Any:
    epoch = {"committed_leader_epoch": 3} if version >= 2 else {}
    asked = part_of(
        KEY,
        version,
        "TxnOffsetCommitRequestTopic",
        name=topic,
        partitions=tuple(
            part_of(
                KEY,
                version,
                "TxnOffsetCommitRequestPartition",
                partition_index=index,
                committed_offset=10 + index,
                committed_metadata=text,
                **epoch,
            )
            for index in partitions
        ),
    )
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    given = {"transactional_id": "id", "group_id": "g", "producer_id": 7, "producer_epoch": 2}
    if version >= SINCE_MEMBER:
        given |= member
    return request_of(KEY, version, topics=(asked,), **{**given, **fields})


def codes(answer: Any) -> list[ErrorCode]:
    return [ErrorCode(p.error_code.value) for t in answer.topics for p in t.partitions]


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_are_written_in_the_transaction(broker: FakeBroker, version: int) -> None:
    assert codes(broker.call(ask(version, 0, 1))) == [ErrorCode.NONE] * 2
    ((group_id, offsets, producer_id, epoch, committer, guard),) = offsets_of(broker).commits
    assert (group_id, producer_id, epoch, guard) == ("g", 7, 2, -1)
    assert committer == Committer("", None, -1, in_transaction=True)
    leader_epoch = 3 if version >= 2 else -1
    found = [(each.partition, each.offset, each.leader_epoch) for each in offsets]
    assert found == [(0, 10, leader_epoch), (1, 11, leader_epoch)]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_partition_of_the_group_is_verified_first(broker: FakeBroker, version: int) -> None:
    broker.services.verify_offsets = verifier = Verifier()
    broker.call(ask(version, 0))
    assert verifier.asked == [(ord("g") % PARTITIONS, "id", 7, 2, version)]
    assert offsets_of(broker).commits[0][-1] == verifier.guard


@pytest.mark.parametrize(
    ("version", "code", "answer"),
    [
        (2, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (5, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (5, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (5, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (5, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (1, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (5, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (5, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (5, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_nothing_is_written_of_a_transaction_that_is_not_verified(
    broker: FakeBroker, version: int, code: ErrorCode, answer: ErrorCode
) -> None:
    broker.services.verify_offsets = Verifier(code)
    # A partition that is not there keeps its own error.
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(broker.call(ask(version, 0, 2, 1))) == [answer, unknown, answer]
    assert offsets_of(broker).commits == []


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_partition_is_refused_alone(broker: FakeBroker, version: int) -> None:
    broker.services.verify_offsets = verifier = Verifier()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(broker.call(ask(version, -1, 2))) == [unknown] * 2
    assert codes(broker.call(ask(version, 0, topic="none"))) == [unknown]
    assert codes(broker.call(ask(version))) == []
    assert verifier.asked == offsets_of(broker).commits == []
    assert codes(broker.call(ask(version, 0, 2))) == [ErrorCode.NONE, unknown]


def test_a_long_text_is_refused_alone(broker: FakeBroker) -> None:
    assert codes(broker.call(ask(5, 0, text="x" * 4097))) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert codes(broker.call(ask(5, 0, text="x" * 4096))) == [ErrorCode.NONE]


@pytest.mark.parametrize("version", range(SINCE_MEMBER, 6))
def test_a_member_of_a_group_that_is_not_there(broker: FakeBroker, version: int) -> None:
    request = ask(version, 0, generation_id=3, member_id="m")
    assert codes(broker.call(request)) == [ErrorCode.ILLEGAL_GENERATION]
    assert offsets_of(broker).commits == []


def test_a_group_without_a_name(broker: FakeBroker) -> None:
    assert codes(broker.call(ask(5, 0, group_id=""))) == [ErrorCode.INVALID_GROUP_ID]


@pytest.mark.parametrize(
    ("state", "version", "answer"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_COORDINATOR, 0, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_group_of_another_broker(
    broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    state: ErrorCode,
    version: int,
    answer: ErrorCode,
) -> None:
    monkeypatch.setattr(broker.services.groups, "state_of", lambda group_id: state)
    assert codes(broker.call(ask(version, 0))) == [answer]


def test_a_group_that_changes_is_asked_again(broker: FakeBroker) -> None:
    offsets_of(broker).codes = [ErrorCode.ILLEGAL_GENERATION]
    assert codes(broker.call(ask(5, 0))) == [ErrorCode.NONE]
    again = [each[-2].checked_twice for each in offsets_of(broker).commits]
    assert again == [False, True]
    offsets_of(broker).codes = [ErrorCode.ILLEGAL_GENERATION] * 3
    assert codes(broker.call(ask(5, 0))) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_offsets_that_the_followers_do_not_have_are_no_commit(broker: FakeBroker) -> None:
    offsets_of(broker).replicated = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(broker.call(ask(5, 0))) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_the_error_of_the_whole_is_that_of_each(broker: FakeBroker) -> None:
    broker.controller.image = None  # type: ignore[assignment]
    answer = answer_of(broker.ask(ask(5, 0, 1)))
    assert codes(answer) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_closes_the_connection(version: int) -> None:
    body = written(ask(version, 0))
    for size in range(len(body)):
        request = FakeBroker().send(KEY, version, body[:size])
        assert request.answer is None
        assert request.closed is not None
