"""The parsers and writers of Produce and Fetch in C, beside the tables of the same messages.

A request of a drawn shape is written by its table, in every version: topics that are there and are
not, partitions, null and empty records, tagged fields, one frame cut short. What the C parser read
of it is seen in the logs and in the answer, which the table reads to its last byte and writes again
as the same bytes.
"""

from __future__ import annotations

import random
import struct
import uuid
from typing import Any, Final

import pytest

from kbroker.errors import ErrorCode
from kbroker.protocol import messages
from kbroker.protocol.versions import FLEXIBLE_SINCE
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import FETCH_BY_ID, FETCH_VERSIONS, PRODUCE_BY_ID, PRODUCE_VERSIONS
from tests.unit.net.harness import Client, Rig, Topic, framed, header

ROUNDS: Final = 25
PARTITIONS: Final = 3
PRODUCE: Final = messages.produce
FETCH: Final = messages.fetch
WHOLE: Final = 1 << 30
UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def topics_of(rig: Rig, dice: random.Random) -> list[Topic]:
    """Some that are there and one that is not, in any order, with names of any length."""
    names = ["t", "topic-with-a-longer-name", "x" * dice.randrange(120, 200)]
    topics = [rig.create(name, partitions=PARTITIONS) for name in names]
    return [*topics, Topic("nowhere", uuid.UUID(int=dice.getrandbits(128)), [])]


def named(topic: Topic, *, by_id: bool, name: str) -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if by_id else {name: topic.name}


def ask(client: Client, key: ApiKey, version: int, body: bytes) -> bytes:
    """The body of the answer."""
    client.send(framed(header(key, version, 7) + body))
    payload = client.receive()
    assert struct.unpack(">i", payload[:4]) == (7,)
    return payload[5 if version >= FLEXIBLE_SINCE[key] else 4 :]


def read_by_its_table(response: Any, body: bytes, version: int) -> Any:
    answer = response.decode(body, version)
    assert answer.encode(version) == body
    return answer


def some_indexes(dice: random.Random) -> list[int]:
    """Each once: what is answered to a partition that is named twice is tested elsewhere."""
    return dice.sample([*range(PARTITIONS), PARTITIONS, -1, 2**31 - 1], dice.randrange(5))


def cut_anywhere(request: Any, rig: Rig, key: ApiKey, version: int, dice: random.Random) -> None:
    """A frame that ends too soon is refused by both."""
    body = request.encode(version)
    cut = body[: dice.randrange(len(body))]
    with pytest.raises(ProtocolError):
        request.decode(cut, version)
    client = rig.client()
    client.send(framed(header(key, version) + cut))
    assert client.ended()
    client.close()


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produces_of_any_shape(rig: Rig, version: int) -> None:
    dice = random.Random(f"produce {version}")
    topics, client, by_id = topics_of(rig, dice), rig.client(), version >= PRODUCE_BY_ID
    request = PRODUCE.Request(transactional_id=None, acks=1, timeout_ms=0, topic_data=[])
    for _ in range(ROUNDS):
        asked: list[tuple[Topic, int, bytes | None, int]] = []
        data = []
        for topic in dice.sample(topics, dice.randrange(len(topics) + 1)):
            parts = []
            for index in some_indexes(dice):
                count = dice.randrange(1, 4)
                batch = build_batch([dice.randbytes(dice.randrange(300)) for _ in range(count)])
                records = dice.choice((batch, batch, batch, b"", None))
                asked.append((topic, index, records, count))
                parts.append(PRODUCE.PartitionData(index=index, records=records))
            data.append(
                PRODUCE.TopicData(**named(topic, by_id=by_id, name="name"), partition_data=parts)
            )
        request = PRODUCE.Request(
            transactional_id=dice.choice((None, None, "id")),
            acks=dice.choice((1, -1)),
            timeout_ms=dice.randrange(2**31),
            topic_data=data,
        )
        ends = [[log.log_end_offset for log in topic.logs] for topic in topics]
        body = ask(client, ApiKey.PRODUCE, version, request.encode(version))
        answer = read_by_its_table(PRODUCE.Response, body, version)
        found = [
            (response.topic_id if by_id else response.name, part)
            for response in answer.responses
            for part in response.partition_responses
        ]
        assert len(answer.responses) == sum(bool(each.partition_data) for each in data)
        assert len(found) == len(asked)
        for (name, part), (topic, index, records, count) in zip(found, asked, strict=True):
            assert (name, part.index) == (topic.topic_id if by_id else topic.name, index)
            if not topic.logs or not 0 <= index < PARTITIONS:
                assert part.error_code in UNKNOWN
            elif not records:
                assert part.error_code == ErrorCode.INVALID_RECORD
            else:
                end = ends[topics.index(topic)][index]
                assert (part.error_code, part.base_offset) == (0, end)
                log = topic.logs[index]
                assert log.log_end_offset == end + count
                # As it came, but for its base offset and the leader's epoch.
                assert log.read(end, WHOLE)[16:] == records[16:]
    cut_anywhere(request, rig, ApiKey.PRODUCE, version, dice)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetches_of_any_shape(rig: Rig, version: int) -> None:
    dice = random.Random(f"fetch {version}")
    topics, client, by_id = topics_of(rig, dice), rig.client(), version >= FETCH_BY_ID
    for topic in topics:
        for log in topic.logs:
            for _ in range(dice.randrange(4)):
                log.append(build_batch([dice.randbytes(dice.randrange(1, 400))]))
    request = FETCH.Request(max_wait_ms=0, min_bytes=0, topics=[])
    for _ in range(ROUNDS):
        asked: list[tuple[Topic, Any]] = []
        fetched = []
        for topic in dice.sample(topics, dice.randrange(len(topics) + 1)):
            parts = [some_partition(dice, index) for index in some_indexes(dice)]
            asked += [(topic, part) for part in parts]
            fetched.append(
                FETCH.FetchTopic(**named(topic, by_id=by_id, name="topic"), partitions=parts)
            )
        request = FETCH.Request(
            cluster_id=dice.choice((None, "", "cluster")),
            max_wait_ms=0,
            min_bytes=dice.choice((0, 1, 2**31 - 1)),
            max_bytes=dice.choice((2**31 - 1, 50 << 20)),
            isolation_level=dice.randrange(2),
            topics=fetched,
            forgotten_topics_data=[
                FETCH.ForgottenTopic(
                    **named(topic, by_id=by_id, name="topic"), partitions=some_indexes(dice)
                )
                for topic in dice.sample(topics, dice.randrange(3))
            ],
            rack_id=dice.choice(("", "rack", "r" * 130)),
        )
        body = ask(client, ApiKey.FETCH, version, request.encode(version))
        answer = read_by_its_table(FETCH.Response, body, version)
        found = {
            (response.topic_id if by_id else response.topic, part.partition_index): part
            for response in answer.responses
            for part in response.partitions
        }
        assert answer.error_code == answer.session_id == 0
        assert len(found) == len(asked) == sum(len(each.partitions) for each in answer.responses)
        for topic, wanted in asked:
            name = topic.topic_id if by_id else topic.name
            look_at(found[name, wanted.partition], topic, wanted, version)
    cut_anywhere(request, rig, ApiKey.FETCH, version, dice)


def some_partition(dice: random.Random, index: int) -> Any:
    return FETCH.FetchPartition(
        partition=index,
        current_leader_epoch=dice.choice((-1, -1, -1, 0, 1_000)),
        fetch_offset=dice.choice((0, 0, 1, 2, 3, 4, 2**62)),
        log_start_offset=dice.choice((-1, 0, 2**40)),
        partition_max_bytes=dice.choice((0, 1, 2**31 - 1)),
        replica_directory_id=dice.choice((None, uuid.UUID(int=dice.getrandbits(128)))),
        high_watermark=dice.choice((2**63 - 1, 5)),
    )


def look_at(part: Any, topic: Topic, wanted: Any, version: int) -> None:
    """One partition of an answer, compared with its request."""
    if not topic.logs or not 0 <= wanted.partition < PARTITIONS:
        assert part.error_code in UNKNOWN
        return
    log = topic.logs[wanted.partition]
    if version >= 9 and wanted.current_leader_epoch > 0:
        assert part.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    elif wanted.fetch_offset > log.log_end_offset:
        assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        assert (part.error_code, part.high_watermark) == (0, log.log_end_offset)
        if wanted.partition_max_bytes == 2**31 - 1 and wanted.fetch_offset < log.log_end_offset:
            assert part.records == log.read(wanted.fetch_offset, WHOLE)
