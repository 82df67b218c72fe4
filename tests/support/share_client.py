"""A client of share groups that sends what it is given: one connection, one request at a time."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any, Final, Self
from uuid import UUID

from kbroker.errors import ErrorCode
from kbroker.peer import frames
from kbroker.protocol import messages
from kbroker.protocol.record_batch import Record, encode_batch
from kbroker.types import ApiKey, uuid_text
from tests.unit.net.harness import eventually

Acknowledged = tuple[int, int, Sequence[int]]  # first offset, last offset, types
ANSWER_TIMEOUT_S = 30
CLIENT_ID = "share"


# Apache Kafka names the leader of a new partition before that broker leads it.
_NOT_LED_YET: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class ShareClient:
    def __init__(self, bootstrap: str, group_id: str = "g", member_id: str = "m") -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S)
        self._requests = 0
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, key: ApiKey, version: int, request: Any) -> Any:
        """EOFError: the broker has closed the connection."""
        self.send(key, version, request)
        return self.receive(key, version)

    def send(self, key: ApiKey, version: int, request: Any) -> None:
        body = request.encode(version)
        self._socket.sendall(frames.request_frame(key, version, self._requests, CLIENT_ID, body))
        self._requests += 1

    def send_no_more(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def receive(self, key: ApiKey, version: int) -> Any:
        """EOFError: the broker has closed the connection."""
        data = self._read(int.from_bytes(self._read(4), "big"))
        table = getattr(messages, key.name.lower())
        is_flexible = version >= table.Response.flexible_since and key is not ApiKey.API_VERSIONS
        header_bytes = 5 if is_flexible else 4
        return table.Response.decode(data[header_bytes:], version)

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    # --- preparations -----------------------------------------------------------------------------

    def raise_level(self, feature: str) -> None:
        self.set_level(feature, 1)

    def set_level(self, feature: str, level: int) -> None:
        table = messages.update_features
        kind = 1 if level else 2  # upgrade, safe downgrade
        changed = table.FeatureUpdateKey(
            feature=feature, max_version_level=level, upgrade_type=kind
        )
        answer = self.ask(
            ApiKey.UPDATE_FEATURES, 1, table.Request(timeout_ms=10_000, feature_updates=[changed])
        )
        assert answer.error_code == 0, answer.error_message

    def set_fetch_quota(self, rate: float | None) -> None:
        """Of clients with this client's id; None: there is none."""
        table = messages.alter_client_quotas
        entity = [table.EntityData(entity_type="client-id", entity_name=CLIENT_ID)]
        change = table.OpData(key="consumer_byte_rate", value=rate or 0.0, remove=rate is None)
        entry = table.EntryData(entity=entity, ops=[change])
        answer = self.ask(
            ApiKey.ALTER_CLIENT_QUOTAS, 1, table.Request(entries=[entry], validate_only=False)
        )
        assert answer.entries[0].error_code == 0

    def is_coordinated(self) -> bool:
        """Its group and the states of that have a coordinator; their topics are made if need be."""
        table = messages.find_coordinator
        codes = []
        for kind, key in ((0, self.group_id), (2, f"{self.group_id}:AAAAAAAAAAAAAAAAAAAAAQ:0")):
            asked = table.Request(key_type=kind, coordinator_keys=[key])
            (found,) = self.ask(ApiKey.FIND_COORDINATOR, 6, asked).coordinators
            codes.append(found.error_code)
        return not any(codes)

    def topic_id(self, topic: str) -> UUID:
        table = messages.metadata
        answer = self.ask(ApiKey.METADATA, 12, table.Request(topics=None))
        found: UUID = next(each.topic_id for each in answer.topics if each.name == topic)
        return found

    def initialize(self, topic_id: UUID, partition: int = 0, *, start: int = -1) -> ErrorCode:
        """As the group's coordinator does, once the state topic is there."""
        finds = messages.find_coordinator
        key = f"{self.group_id}:{uuid_text(topic_id)}:{partition}"
        self.ask(ApiKey.FIND_COORDINATOR, 6, finds.Request(key_type=2, coordinator_keys=[key]))
        table = messages.initialize_share_group_state
        state = table.PartitionData(partition=partition, state_epoch=1, start_offset=start)
        topics = [table.InitializeStateData(topic_id=topic_id, partitions=[state])]
        answer = self.ask(
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            0,
            table.Request(group_id=self.group_id, topics=topics),
        )
        return ErrorCode(answer.results[0].partitions[0].error_code)

    def produce(self, topic: str, count: int, partition: int = 0) -> None:
        table = messages.produce
        records = encode_batch([Record(None, b"v%d" % at, timestamp_ms=1) for at in range(count)])
        data = table.PartitionData(index=partition, records=records)
        topics = [table.TopicData(name=topic, partition_data=[data])]
        request = table.Request(acks=-1, timeout_ms=10_000, topic_data=topics)

        def is_appended() -> bool:
            answer = self.ask(ApiKey.PRODUCE, 9, request)
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
            assert code in (ErrorCode.NONE, *_NOT_LED_YET), code
            return code is ErrorCode.NONE

        eventually(is_appended, "a leader")

    # --- share groups -----------------------------------------------------------------------------

    def fetch(self, topic_id: UUID | None = None, *acknowledged: Acknowledged, **how: Any) -> Any:
        """See `asked`."""
        return self.ask(ApiKey.SHARE_FETCH, 2, self.asked(topic_id, *acknowledged, **how))

    def asked(
        self,
        topic_id: UUID | None = None,
        *acknowledged: Acknowledged,
        partition: int = 0,
        epoch: int | None = None,
        wait_ms: int = 5_000,
        records: int = 500,
        min_bytes: int = 1,
        **how: Any,
    ) -> Any:
        """`topic_id`: the partition is in the session from now on. The next epoch, where none is
        given."""
        table = messages.share_fetch
        batches = [
            table.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=list(types))
            for a, b, types in acknowledged
        ]
        here = table.FetchPartition(partition_index=partition, acknowledgement_batches=batches)
        topics = [table.FetchTopic(topic_id=topic_id, partitions=[here])] if topic_id else []
        sizes = {"max_bytes": 1 << 20, "batch_size": 500, **how}
        return table.Request(
            group_id=self.group_id, member_id=self.member_id,
            share_session_epoch=self._next(epoch), max_wait_ms=wait_ms, max_records=records,
            min_bytes=min_bytes, topics=topics, **sizes,
        )  # fmt: skip

    def acknowledge(
        self,
        topic_id: UUID,
        *acknowledged: Acknowledged,
        epoch: int | None = None,
        renews: bool = False,
    ) -> Any:
        asked = self.acknowledgement(topic_id, *acknowledged, epoch=epoch, renews=renews)
        return self.ask(ApiKey.SHARE_ACKNOWLEDGE, 2, asked)

    def acknowledgement(
        self,
        topic_id: UUID,
        *acknowledged: Acknowledged,
        epoch: int | None = None,
        renews: bool = False,
    ) -> Any:
        """The request."""
        table = messages.share_acknowledge
        batches = [
            table.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=list(types))
            for a, b, types in acknowledged
        ]
        here = table.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        return table.Request(
            group_id=self.group_id, member_id=self.member_id,
            share_session_epoch=self._next(epoch), is_renew_ack=renews,
            topics=[table.AcknowledgeTopic(topic_id=topic_id, partitions=[here])],
        )  # fmt: skip

    def _next(self, epoch: int | None) -> int:
        if epoch is None:
            epoch, self.epoch = self.epoch, self.epoch + 1
        elif epoch == 0:
            self.epoch = 1
        return epoch


class ShareMember:
    """A member of a group, by requests."""

    def __init__(self, bootstrap: str, group_id: str, member_id: str = "m") -> None:
        self.client = ShareClient(bootstrap, group_id, member_id)
        self.epoch = 0

    def beat(self, *topics: str, epoch: int | None = None) -> Any:
        table = messages.share_group_heartbeat
        answer = self.client.ask(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            table.Request(
                group_id=self.client.group_id, member_id=self.client.member_id,
                member_epoch=self.epoch if epoch is None else epoch,
                subscribed_topic_names=list(topics) or None,
            ),
        )  # fmt: skip
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
        return answer

    def join(self, *topics: str) -> None:
        """All partitions of these are its own then."""
        eventually(lambda: self.beat(*topics).error_code == 0, "the coordinator takes a member")

        def has_them() -> bool:
            assignment = self.beat().assignment
            return assignment is not None and len(assignment.topic_partitions) == len(topics)

        eventually(has_them, "a member has its partitions")

    def leave(self) -> None:
        self.beat(epoch=-1)
        self.client.close()


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    """(first offset, last offset, delivery count) of all that an answer brings."""
    assert answer.error_code == 0, (answer.error_code, answer.error_message)
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


def codes(answer: Any) -> list[int]:
    """Of the acknowledgements."""
    return [
        partition.acknowledge_error_code
        if hasattr(partition, "acknowledge_error_code")
        else partition.error_code
        for topic in answer.responses
        for partition in topic.partitions
    ]
