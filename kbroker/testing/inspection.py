"""What is in a broker, without a consumer: records, groups, commits, through the protocol.

`Inspection` is an ordinary client with a name of its own, so that faults and the request trace
leave it alone. It asks any broker at an address: the one under test or, in tests that run against
another, that one.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.acl_messages import decode_create_acls, encode_create_acls
from kbroker.peer.client import Client
from kbroker.peer.group_descriptions import describe_group
from kbroker.peer.groups import Groups
from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NewTopic
from kbroker.peer.placement_messages import PREFERRED_ELECTION
from kbroker.peer.transactions import Transactions
from kbroker.protocol.record_batch import decode_batches
from kbroker.testing.faults import INSPECTOR_CLIENT_ID
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker.security.acls import Acl

WAIT_S: Final = 30.0
_POLL_S: Final = 0.01
_FETCH_BYTES: Final = 16 << 20

T = TypeVar("T")


class RecordSeen(NamedTuple):
    """One record of a topic, as it is stored."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class GroupSeen(NamedTuple):
    """A consumer group; `members` are client ids, one for each member."""

    group: str
    state: str
    protocol: str
    members: tuple[str, ...]


class TransactionSeen(NamedTuple):
    """A transactional id; `partitions` are those of its open transaction."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]


class Inspection:
    def __init__(self, bootstrap: str) -> None:
        self._client = Client(bootstrap, client_id=INSPECTOR_CLIENT_ID)
        self._groups = Groups(self._client)
        self._transactions = Transactions(self._client)

    def close(self) -> None:
        self._client.close()

    def create_topics(self, topics: Mapping[str, int], configs: Mapping[str, str]) -> None:
        """By name and partitions; those that are there already stay as they are."""
        wanted = [
            NewTopic(name, partitions=count, replication_factor=-1, configs=dict(configs))
            for name, count in topics.items()
        ]
        for result in self._client.create_topics(wanted):
            if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise KafkaError(result.error, result.message or "")
        for name in topics:
            wait_until(partial(self._has_leaders, name), f"{name} is there")

    def _has_leaders(self, topic: str) -> bool:
        """Another broker than the one that made it may not have been notified of it yet."""
        try:
            return bool(self._client.partitions(topic))
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            raise

    def create_acls(self, acls: Sequence[Acl]) -> None:
        """KafkaError: one of them cannot be."""
        results = self._client.cluster.at_controller(
            ApiKey.CREATE_ACLS,
            lambda version: encode_create_acls(version, acls),
            decode_create_acls,
        )
        for result in results:
            if result.error is not ErrorCode.NONE:
                raise KafkaError(result.error, result.message or "")

    def have_lead(self, name: TopicPartition, broker_id: int) -> None:
        """The preferred replica is this one from now on, and leads; KafkaError where it cannot.

        While the controller cannot reach the metadata store it is asked again.
        """
        wait_until(partial(self._asked_to_lead, name, broker_id), f"{broker_id} may lead {name}")

    def _asked_to_lead(self, name: TopicPartition, broker_id: int) -> bool:
        found = self._client.metadata([name.topic]).topics[name.topic].partitions
        (now,) = (each for each in found if each.index == name.partition)
        others = [each for each in now.replicas if each != broker_id]
        results = self._client.reassign({name: [broker_id, *others]})
        results += self._client.elect_leaders(PREFERRED_ELECTION, [name])
        for each in results:
            if each.error is ErrorCode.KAFKA_STORAGE_ERROR:
                return False
            if each.error not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                raise KafkaError(each.error, f"{name}: {each.message}")
        return True

    def delete_topic(self, name: str) -> None:
        self._client.delete_topics([name])

    def topics(self) -> dict[str, int]:
        """Partitions by name; what the broker keeps for itself is left out."""
        found = self._client.metadata().topics.values()
        return {t.name: len(t.partitions) for t in found if not t.internal}

    def records(self, topic: str, partition: int | None = None) -> list[RecordSeen]:
        """Everything that is readable now, by partition and offset."""
        everywhere = self._client.partitions(topic)
        wanted = everywhere if partition is None else [partition]
        places = [TopicPartition(topic, index) for index in wanted]
        begins = self._client.list_offsets(dict.fromkeys(places, EARLIEST_TIMESTAMP))
        ends = self._client.list_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
        found: list[RecordSeen] = []
        for place in sorted(places, key=lambda each: each.partition):
            found += self._read(place, begins[place].offset, ends[place].offset)
        return found

    def _read(self, place: TopicPartition, position: int, end: int) -> list[RecordSeen]:
        found: list[RecordSeen] = []
        while position < end:
            results = self._client.fetch(
                {place: position}, max_wait_ms=100, partition_max_bytes=_FETCH_BYTES
            )
            if place not in results:
                continue  # its leader is about to change
            result = results[place]
            if result.error is not ErrorCode.NONE:
                raise KafkaError(result.error, f"{place} cannot be read at {position}")
            for batch in decode_batches(result.records):
                if not batch.control:
                    found += [
                        RecordSeen(
                            place.partition, r.offset, r.timestamp_ms, r.key, r.value, r.headers
                        )
                        for r in batch.records
                        if position <= r.offset < end
                    ]
                position = max(position, batch.last_offset + 1)
        return found

    def groups(self) -> list[GroupSeen]:
        return [self.group(listed.group.group) for listed in self._groups.list_groups()]

    def group(self, name: str) -> GroupSeen:
        """A group that no broker knows is "Dead"."""
        found = describe_group(self._groups, name)
        if found is None:
            return GroupSeen(name, "Dead", "", ())
        members = tuple(sorted(member.client_id for member in found.members))
        return GroupSeen(name, found.state, found.protocol, members)

    def transactions(self) -> list[TransactionSeen]:
        listed = self._transactions.list_transactions()
        names = [each.transaction.transactional_id for each in listed]
        described = self._transactions.describe(names)
        return [
            TransactionSeen(
                name, found.state, found.producer_id, found.epoch, tuple(sorted(found.partitions))
            )
            for name in names
            if not (found := described[name].transaction).error
        ]

    def committed(self, group: str) -> dict[TopicPartition, int]:
        found = self._groups.offsets(group)
        return {place: it.offset for place, it in found.items() if it.offset >= 0}


def wait_until(
    condition: Callable[[], T | None],
    what: str,
    timeout_s: float = WAIT_S,
    *,
    show: Sequence[str] = (),
) -> T:
    """The condition's value once it is true; TimeoutError with its last value."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {timeout_s:g} s" + "".join(f"; {s}" for s in show))
        time.sleep(_POLL_S)


class Inspected:
    """What can be asked of any broker; `_look` gives the client, `_inspecting` its lock."""

    _inspecting: threading.RLock

    def _look(self) -> Inspection:
        raise NotImplementedError

    def create_topics(self, topics: Mapping[str, int], **configs: object) -> None:
        """By name and partitions; `configs` with _ for a dot: cleanup_policy="compact"."""
        named = {key.replace("_", "."): str(value) for key, value in configs.items()}
        self._create_topics(topics, named)

    def _create_topics(self, topics: Mapping[str, int], configs: Mapping[str, str]) -> None:
        with self._inspecting:
            self._look().create_topics(topics, configs)

    def create_topic(self, name: str = "", partitions: int = 1, **configs: object) -> str:
        """One topic; without a name one with a unique name. Returns the name."""
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        self.create_topics({name: partitions}, **configs)
        return name

    def delete_topic(self, name: str) -> None:
        with self._inspecting:
            self._look().delete_topic(name)

    def topics(self) -> dict[str, int]:
        """Partitions by name, without what the broker keeps for itself."""
        with self._inspecting:
            return self._look().topics()

    def records(self, topic: str, partition: int | None = None) -> list[RecordSeen]:
        """Everything that is readable in a topic now, by partition and offset."""
        with self._inspecting:
            return self._look().records(topic, partition)

    def groups(self) -> list[GroupSeen]:
        with self._inspecting:
            return self._look().groups()

    def group(self, name: str) -> GroupSeen:
        """One group; one that no broker knows is "Dead"."""
        with self._inspecting:
            return self._look().group(name)

    def transactions(self) -> list[TransactionSeen]:
        """The transactional ids that the coordinators know, by name."""
        with self._inspecting:
            return self._look().transactions()

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The offsets that a group has committed."""
        with self._inspecting:
            return self._look().committed(group)

    def wait_for(
        self,
        *,
        group: str,
        state: str | None = None,
        members: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> GroupSeen:
        """Until the group is in the state, and has so many members; TimeoutError otherwise."""
        seen: list[str] = []

        def there() -> GroupSeen | None:
            found = self.group(group)
            seen[:] = [f"it is {found}"]
            fits = state is None or found.state.lower() == state.lower()
            enough = members is None or len(found.members) == members
            return found if fits and enough else None

        what = f"group {group!r} did not come to be {state or ''} with {members or 'any'} members"
        return wait_until(there, what, timeout_s, show=seen) or self.group(group)

    def wait_for_records(
        self, topic: str, count: int, *, timeout_s: float = WAIT_S
    ) -> list[RecordSeen]:
        """Until the topic has at least so many records; all of them."""
        seen: list[str] = []

        def there() -> list[RecordSeen] | None:
            found = self.records(topic)
            seen[:] = [f"it has {len(found)}"]
            return found if len(found) >= count else None

        found = wait_until(there, f"{topic} did not get {count} records", timeout_s, show=seen)
        return found or []
