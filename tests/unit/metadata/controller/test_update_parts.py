"""Updates that are too large for one request: cut, sent in order, put together at the other end."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode
from kbroker.metadata.cluster_delta import ClusterDelta
from kbroker.metadata.controller.image_updates import (
    NOTHING,
    UPDATE_PART_VERSION,
    UPDATE_VERSION,
    ImageUpdate,
)
from kbroker.metadata.controller.update_parts import (
    PartsReceived,
    UpdatePart,
    UpdateWays,
    encode_part,
    part_of,
)
from kbroker.metadata.image import ClusterImage
from kbroker.protocol.messages.update_metadata import Request
from kbroker.protocol.wire import ProtocolError

DELTA = ClusterDelta.between(ClusterImage(), ClusterImage(cluster_id="c"))
UPDATE = ImageUpdate(2, 7, 55, NOTHING, 9, DELTA)
NODE = 3
BODY = bytes(range(100))
WHOLE_MAX, PART = 60, 30


def parts(body: bytes = BODY, update: ImageUpdate = UPDATE) -> list[UpdatePart]:
    requests = list(UpdateWays(WHOLE_MAX, PART).requests(NODE, update, body))
    assert {version for version, _ in requests} == {UPDATE_PART_VERSION}
    return [decode_part(request) for _, request in requests]


def decode_part(body: bytes) -> UpdatePart:
    return part_of(Request.decode(body, UPDATE_PART_VERSION))


def test_an_update_that_fits_is_sent_whole() -> None:
    body = BODY[:WHOLE_MAX]
    assert list(UpdateWays(WHOLE_MAX, PART).requests(NODE, UPDATE, body)) == [
        (UPDATE_VERSION, body)
    ]


def test_the_last_part_completes_a_cut_update() -> None:
    received = PartsReceived()
    *first, last = parts()
    assert [received.take(part) for part in first] == [ErrorCode.NONE] * 3
    assert received.take(last) == BODY
    assert received.take(last) is ErrorCode.INVALID_UPDATE_VERSION  # it is complete, and gone


def test_a_part_that_is_missing_has_all_of_it_sent_again() -> None:
    received = PartsReceived()
    first, second, third, last = parts()
    assert received.take(first) is ErrorCode.NONE
    assert received.take(third) is ErrorCode.INVALID_UPDATE_VERSION
    assert [received.take(part) for part in (first, second, third)] == [ErrorCode.NONE] * 3
    assert received.take(last) == BODY


def test_parts_of_two_updates_are_not_mixed() -> None:
    received = PartsReceived()
    other = parts(update=UPDATE._replace(version=10))
    assert received.take(parts()[0]) is ErrorCode.NONE
    assert received.take(other[1]) is ErrorCode.INVALID_UPDATE_VERSION
    assert received.take(other[0]) is ErrorCode.NONE  # takes the place of the first one
    assert received.take(parts()[1]) is ErrorCode.INVALID_UPDATE_VERSION


def test_an_older_controller_does_not_take_the_place_of_a_newer_one() -> None:
    received = PartsReceived()
    older = parts(update=UPDATE._replace(controller_epoch=6))
    first, *rest = parts()
    assert received.take(first) is ErrorCode.NONE
    assert received.take(older[0]) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert [received.take(part) for part in rest][-1] == BODY


def test_more_bytes_than_an_image_may_have_are_not_kept() -> None:
    received = PartsReceived(bytes_max=2 * PART)
    taken = [received.take(part) for part in parts()]
    none, too_large, unknown = (
        ErrorCode.NONE,
        *(
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.INVALID_UPDATE_VERSION,
        ),
    )
    assert taken == [none, none, too_large, unknown]


def test_a_whole_update_ends_an_incomplete_one() -> None:
    received = PartsReceived()
    first, second, *_ = parts()
    received.take(first)
    received.forget()
    assert received.take(second) is ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("index", [-1, 4, 2**31 - 1])
def test_a_part_that_cannot_be_is_malformed(index: int) -> None:
    body = encode_part(parts()[0]._replace(number=index))
    with pytest.raises(ProtocolError):
        decode_part(body)


def test_each_time_without_an_answer_the_next_update_goes_the_other_way() -> None:
    ways = UpdateWays(WHOLE_MAX, PART)

    def versions(body: bytes, update: ImageUpdate = UPDATE) -> set[int]:
        return {version for version, _ in ways.requests(NODE, update, body)}

    in_one, small = BODY[:WHOLE_MAX], BODY[:PART]
    assert versions(BODY) == {UPDATE_PART_VERSION}
    ways.not_answered(NODE, UPDATE, BODY)  # it knows no parts, perhaps
    assert versions(BODY) == {UPDATE_VERSION}
    assert versions(in_one) == {UPDATE_PART_VERSION}
    assert versions(BODY, UPDATE._replace(broker_epoch=56)) == {UPDATE_PART_VERSION}
    ways.not_answered(NODE, UPDATE, small)  # not for its size
    assert versions(BODY) == {UPDATE_VERSION}
    ways.not_answered(NODE, UPDATE, BODY)
    assert versions(BODY) == {UPDATE_PART_VERSION}
    assert versions(in_one) == {UPDATE_VERSION}
