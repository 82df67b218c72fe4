"""OffsetFetch: a group that is named again and again, and what the client asks for."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.coordinator.runtime._shard_table import Written
from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, answer_of, part_of, request_of

OFFSETS = 20_000


class Offsets:
    """One topic with so many committed offsets, in the form of version 8."""

    def __init__(self) -> None:
        self.asked = 0
        self.waits: list[Callable[[ErrorCode], object]] = []

    def fetch(self, group_id: str, wanted: object, **how: object) -> tuple[int, list[Any], int]:
        self.asked += 1
        one = struct.pack(">iqi", 0, 5, -1) + b"\x01\x00\x00\x00"
        return 0, [("t", b"\xa1\x9c\x01" + one * OFFSETS)], 0

    def when_replicated(
        self, stable: Written, code: int, done: Callable[[ErrorCode], object]
    ) -> None:
        assert code == 0
        self.waits.append(done)


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    broker.services.offsets = Offsets()  # type: ignore[assignment]
    return broker


def test_all_offsets_of_a_group_are_answered_again_within_bounds(broker: FakeBroker) -> None:
    key = ApiKey.OFFSET_FETCH
    group = part_of(key, 8, "OffsetFetchRequestGroup", group_id="g", topics=None)
    request = broker.ask(request_of(key, 8, groups=(group,) * 100, require_stable=False))
    groups = answer_of(request).groups
    assert broker.services.offsets.asked == 1  # type: ignore[attr-defined]
    answered = [each for each in groups if each.error_code.value == ErrorCode.NONE]
    assert len(answered) == 1 + (1 << 20) // (20 * OFFSETS)
    assert {len(each.topics[0].partitions) for each in answered} == {OFFSETS}
    assert groups[-1].error_code.value == ErrorCode.INVALID_REQUEST


def test_a_request_for_stable_offsets_is_answered_when_all_groups_have_their_followers(
    broker: FakeBroker,
) -> None:
    """Apache Kafka 4.3.0 (2026-11-23) with a follower that does not fetch: such an OffsetFetch v8
    waits until it does, also for other groups of the same partition; where it has not come within
    offsets.commit.timeout.ms the group is NOT_COORDINATOR, without a topic."""
    key = ApiKey.OFFSET_FETCH
    groups = tuple(
        part_of(key, 8, "OffsetFetchRequestGroup", group_id=group_id, topics=None)
        for group_id in ("g", "h", "g")
    )
    request = broker.ask(request_of(key, 8, groups=groups, require_stable=True))
    assert request.answer is None
    first, second = broker.services.offsets.waits  # type: ignore[attr-defined]
    second(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert request.answer is None
    first(ErrorCode.NONE)
    answered = answer_of(request).groups
    assert [each.error_code.value for each in answered] == [0, ErrorCode.NOT_COORDINATOR, 0]
    assert [len(each.topics) for each in answered] == [1, 0, 1]
