"""OffsetFetch: a group that is named again and again, and what the client asks for."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, answer_of, part_of, request_of

OFFSETS = 20_000


class Offsets:
    """One topic with so many committed offsets, in the form of version 8."""

    def __init__(self) -> None:
        self.asked = 0
        self.how: dict[str, object] = {}

    def fetch(self, group_id: str, wanted: object, **how: object) -> tuple[int, list[Any], int]:
        self.asked += 1
        self.how = how
        one = struct.pack(">iqi", 0, 5, -1) + b"\x01\x00\x00\x00"
        return 0, [("t", b"\xa1\x9c\x01" + one * OFFSETS)], 0


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    broker.services.offsets = Offsets()  # type: ignore[assignment]
    return broker


def test_all_offsets_of_a_group_are_told_again_within_bounds(broker: FakeBroker) -> None:
    key = ApiKey.OFFSET_FETCH
    group = part_of(key, 8, "OffsetFetchRequestGroup", group_id="g", topics=None)
    request = broker.ask(request_of(key, 8, groups=(group,) * 100, require_stable=False))
    groups = answer_of(request).groups
    assert broker.services.offsets.asked == 1  # type: ignore[attr-defined]
    told = [each for each in groups if each.error_code.value == ErrorCode.NONE]
    assert len(told) == 1 + (1 << 20) // (20 * OFFSETS)
    assert {len(each.topics[0].partitions) for each in told} == {OFFSETS}
    assert groups[-1].error_code.value == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("stable", [True, False])
def test_the_table_is_asked_for_stable_offsets_where_the_client_wants_such(
    broker: FakeBroker, stable: bool
) -> None:
    key = ApiKey.OFFSET_FETCH
    group = part_of(key, 8, "OffsetFetchRequestGroup", group_id="g", topics=None)
    broker.ask(request_of(key, 8, groups=(group,), require_stable=stable))
    assert broker.services.offsets.how["require_stable"] is stable  # type: ignore[attr-defined]
