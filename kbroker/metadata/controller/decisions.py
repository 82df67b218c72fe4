"""What the controller decides, as pure functions over an image: no store, no clock, no thread.

Place in the flow: an event of `controller.py` comes in, one of these says what the cluster should
look like afterwards or why not, and only then is anything written. Randomness (topic ids, where a
placement starts) is handed in, so that a test gets the same answer twice.

Codes and the order of checks are Apache Kafka 4.3's, seen from outside: total size of the request,
name, collision, existence, configuration, assignment or replication factor before partitions. One
case is stricter: of two topics of one request that collide with each other only the first is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.placement import place_replicas
from kbroker.metadata.image import (
    INTERNAL_TOPICS,
    ZERO_UUID,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from kbroker.metadata.topic_names import (
    collision_key,
    has_collision_chars,
    invalid_topic_name,
)

USE_DEFAULT: Final = -1
# Apache Kafka's own bound on one request; it also bounds the time the controller is busy with it.
CHANGED_PARTITIONS_MAX: Final = 10_000
# Names and values of one topic's configuration; they share a store node and every image.
TOPIC_CONFIG_BYTES_MAX: Final = 64 * 1024
# The longest text that a client could set, and read back, as one value.
CONFIG_VALUE_BYTES_MAX: Final = 2**15 - 1

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

# Raises KafkaError INVALID_CONFIG; what it returns is of no interest.
ConfigValidator = Callable[[Mapping[str, str]], object]
# A topic's own configuration, a key, some parts, whether to add or to take them: the key's new
# value; KafkaError INVALID_CONFIG if it is no list.
ListEditor = Callable[[Mapping[str, str], str, str, bool], str]
Assignments = Mapping[int, Sequence[int]] | Sequence[tuple[int, Sequence[int]]]


class NewTopic(NamedTuple):
    """A topic to create. With assignments, both numbers must be USE_DEFAULT."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Assignments | None = None
    configs: Mapping[str, str | None] = _NOTHING


class ConfigChange(NamedTuple):
    """What becomes of one topic's own configuration: first `replace` clears it, then `remove`
    drops keys, `set` sets them, `append` and `subtract` change the parts of lists."""

    topic: str
    set: Mapping[str, str | None] = _NOTHING
    remove: frozenset[str] = frozenset()
    replace: bool = False
    append: Mapping[str, str] = _NOTHING
    subtract: Mapping[str, str] = _NOTHING


class MorePartitions(NamedTuple):
    """A topic that should have more partitions: so many in all. `assignments`: of the new ones."""

    topic: str
    partitions: int
    assignments: Sequence[Sequence[int]] | None = None


class TopicResult(NamedTuple):
    """The answer for one topic; the numbers are those of the topic if `error` is NONE."""

    name: str | None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: UUID = ZERO_UUID
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = _NOTHING

    @classmethod
    def of(cls, topic: TopicImage) -> TopicResult:
        return cls(
            topic.name,
            topic_id=topic.topic_id,
            partitions=len(topic.partitions),
            replication_factor=topic.replication_factor,
            configs=topic.configs,
        )

    @classmethod
    def failed(cls, name: str | None, error: KafkaError, topic_id: UUID = ZERO_UUID) -> TopicResult:
        return cls(name, error.code, error.message, topic_id)


class Defaults(NamedTuple):
    """The numbers meant by USE_DEFAULT, and the check of a topic's configuration."""

    partitions: int
    replication_factor: int
    validate_configs: ConfigValidator
    # Of every new topic; None: as many as there are brokers.


def plan_topics(
    image: ClusterImage,
    specs: Sequence[NewTopic],
    defaults: Defaults,
    new_id: Callable[[], UUID],
    placement_start: int,
    stopping: Collection[int] = (),
) -> list[TopicImage | KafkaError]:
    """For each spec the topic to create, or why not; nothing depends on later specs. Replicas are
    placed on brokers that are `stopping` only where the others are too few."""
    if sum(_partitions_asked(spec, defaults) for spec in specs) > CHANGED_PARTITIONS_MAX:
        message = f"Excessively large request: more than {CHANGED_PARTITIONS_MAX} partitions."
        return [KafkaError(ErrorCode.POLICY_VIOLATION, message) for _ in specs]
    colliding = _Collisions(image.topics)
    planned: dict[str, TopicImage] = {}
    plans: list[TopicImage | KafkaError] = []
    for spec in specs:
        try:
            _check_name(spec.name, image, planned, colliding)
            configs = _checked_configs(spec.configs, defaults.validate_configs)
            if spec.assignments:
                replicas = _assigned_replicas(spec, image.brokers)
            else:
                factor, partitions = _size(spec, defaults)
                replicas = _placed_replicas(
                    partitions, factor, image.brokers, placement_start, stopping
                )
                placement_start += len(replicas)
        except KafkaError as error:
            plans.append(error)
            continue
        topic = new_topic_image(spec.name, new_id(), replicas, configs)
        planned[topic.name] = topic
        plans.append(topic)
    return plans


def new_topic_image(
    name: str, topic_id: UUID, replicas: Iterable[tuple[int, ...]], configs: Mapping[str, str]
) -> TopicImage:
    """A topic in its first state: all replicas in sync, the first one leads, epoch 0."""
    partitions = tuple(
        first_partition_state(name, index, nodes) for index, nodes in enumerate(replicas)
    )
    return TopicImage(
        name, topic_id, partitions, MappingProxyType(dict(configs)), name in INTERNAL_TOPICS
    )


def first_partition_state(name: str, index: int, replicas: tuple[int, ...]) -> PartitionImage:
    return PartitionImage(name, index, replicas, replicas, replicas[0], 0, 0)


# Answers and never raised: a request may name a hundred thousand topics that are not there.
_NO_SUCH_ID: Final = KafkaError(
    ErrorCode.UNKNOWN_TOPIC_ID, "This server has no topic with this id."
)
_NO_SUCH_NAME: Final = KafkaError(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server has no topic with this name."
)


def plan_deletion(image: ClusterImage, topic: str | UUID) -> TopicImage | KafkaError:
    """The topic to delete, by name or by id, or why not."""
    if isinstance(topic, str):
        return image.topic(topic) or _NO_SUCH_NAME
    if topic == ZERO_UUID:
        return KafkaError(ErrorCode.INVALID_REQUEST, "The topic id is zero.")
    return image.topic_by_id(topic) or _NO_SUCH_ID


def plan_partitions(
    image: ClusterImage,
    wanted: Sequence[MorePartitions],
    placement_start: int,
    stopping: Collection[int] = (),
) -> list[TopicImage | KafkaError]:
    """For each the topic with its new partitions, or why not. A topic named twice has neither.
    `stopping` as for new topics."""
    times = Counter(each.topic for each in wanted)
    left = CHANGED_PARTITIONS_MAX
    plans: list[TopicImage | KafkaError] = []
    for each in wanted:
        try:
            if times[each.topic] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Topic '{each.topic}' is in the request {times[each.topic]} times",
                )
            topic = _topic_to_grow(image, each)
            left -= each.partitions - len(topic.partitions)
            if left < 0:
                # As Apache Kafka has it: that much of the request is a record too many for it.
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            replicas = _added_replicas(topic, each, image.brokers, placement_start, stopping)
        except KafkaError as error:
            plans.append(error)
            continue
        placement_start += len(replicas)
        plans.append(_with_more_partitions(topic, replicas))
    return plans


def plan_config_change(
    topic: TopicImage | None,
    change: ConfigChange,
    validate: ConfigValidator,
    edit_list: ListEditor,
) -> TopicImage | KafkaError:
    """The topic with its new configuration, the same object if nothing changes, or why not.

    A value that no topic could have is reported before a topic that does not exist.
    """
    if topic is None and not (change.set or change.append or change.subtract):
        return _no_topic(change.topic)
    before: Mapping[str, str] = topic.configs if topic is not None else _NOTHING
    configs: dict[str, str | None] = {} if change.replace else dict(before)
    for name in change.remove:
        configs.pop(name, None)
    configs.update(change.set)
    try:
        for name, parts in change.append.items():
            configs[name] = edit_list(before, name, parts, True)
        for name, parts in change.subtract.items():
            configs[name] = edit_list(before, name, parts, False)
        checked = _checked_configs(configs, validate)
    except KafkaError as error:
        return error
    if topic is None:
        return _no_topic(change.topic)
    return topic if checked == before else topic.with_configs(checked)


def _no_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")


class _Collisions:
    """The existing names by collision key, built only when a name could collide at all.

    Two new names of one request may collide with each other, as in Apache Kafka.
    """

    def __init__(self, existing: Iterable[str]) -> None:
        self._existing = existing
        self._by_key: dict[str, str] | None = None

    def find(self, name: str) -> str | None:
        if not has_collision_chars(name):
            return None
        if self._by_key is None:
            self._by_key = {
                collision_key(other): other
                for other in self._existing
                if has_collision_chars(other)
            }
        return self._by_key.get(collision_key(name))


def _racks(brokers: Mapping[int, BrokerImage]) -> dict[int, str | None]:
    return {node: broker.rack for node, broker in brokers.items()}


def _partitions_asked(spec: NewTopic, defaults: Defaults) -> int:
    if spec.assignments:
        return len(spec.assignments)
    return defaults.partitions if spec.partitions == USE_DEFAULT else max(0, spec.partitions)


def _check_name(
    name: str, image: ClusterImage, planned: Mapping[str, Any], collisions: _Collisions
) -> None:
    reason = invalid_topic_name(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if name in image.topics or name in planned:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = collisions.find(name)
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic '{other}': "
            "their metrics would have the same names",
        )


def _checked_configs(
    configs: Mapping[str, str | None], validate: ConfigValidator
) -> dict[str, str]:
    if not configs:
        return {}
    nulls = sorted(name for name, value in configs.items() if value is None)
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"No value given for topic configs: {','.join(nulls)}"
        )
    checked = {name: value for name, value in configs.items() if value is not None}
    check_config_bytes(checked)
    validate(checked)
    return checked


def check_config_bytes(checked: Mapping[str, str]) -> None:
    """KafkaError INVALID_CONFIG where settings are more than one node of the store should hold."""
    if sum(len(name) + len(value) for name, value in checked.items()) > TOPIC_CONFIG_BYTES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"The configuration has more than {TOPIC_CONFIG_BYTES_MAX} bytes",
        )
    for name, value in checked.items():
        if len(value.encode()) > CONFIG_VALUE_BYTES_MAX:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"The value of {name} has more than {CONFIG_VALUE_BYTES_MAX} bytes",
            )


def _assigned_replicas(spec: NewTopic, brokers: Mapping[int, BrokerImage]) -> list[tuple[int, ...]]:
    if spec.replication_factor != USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "With a manual partition assignment the replication factor must be -1.",
        )
    if spec.partitions != USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "With a manual partition assignment the number of partitions must be -1.",
        )
    assignments = spec.assignments or ()
    pairs = assignments.items() if isinstance(assignments, Mapping) else assignments
    by_index: dict[int, tuple[int, ...]] = {}
    for index, nodes in pairs:
        if index in by_index:
            raise _bad_assignment(f"Partition {index} is assigned more than once.")
        by_index[index] = _checked_replicas(index, tuple(nodes), brokers)
    if sorted(by_index) != list(range(len(by_index))):
        raise _bad_assignment("Partitions must be numbered from 0 without a gap.")
    factor = len(by_index[0])
    for index, replicas in by_index.items():
        if len(replicas) != factor:
            raise _bad_assignment(
                f"Partition {index} has {len(replicas)} replicas, partition 0 has {factor}."
            )
    return [by_index[index] for index in range(len(by_index))]


def _checked_replicas(
    index: int, nodes: tuple[int, ...], brokers: Mapping[int, BrokerImage]
) -> tuple[int, ...]:
    if not nodes:
        raise _bad_assignment(f"Partition {index} has an empty list of replicas.")
    for node in nodes:
        if node not in brokers:
            raise _bad_assignment(f"Partition {index}: broker {node} is not registered.")
    if len(set(nodes)) != len(nodes):
        raise _bad_assignment(f"Partition {index} names a broker more than once.")
    return nodes


def _topic_to_grow(image: ClusterImage, wanted: MorePartitions) -> TopicImage:
    topic = image.topic(wanted.topic)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if wanted.partitions <= len(topic.partitions):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{topic.name}' has {len(topic.partitions)} partitions already; "
            f"{wanted.partitions} are not more.",
        )
    return topic


def _added_replicas(
    topic: TopicImage,
    wanted: MorePartitions,
    brokers: Mapping[int, BrokerImage],
    start: int,
    stopping: Collection[int],
) -> list[tuple[int, ...]]:
    first, factor = len(topic.partitions), topic.replication_factor
    added = wanted.partitions - first
    if wanted.assignments is None:
        return _placed_replicas(added, factor, brokers, start, stopping)
    if len(wanted.assignments) != added:
        raise _bad_assignment(
            f"{added} partitions are to be added and {len(wanted.assignments)} are assigned."
        )
    replicas = [
        _checked_replicas(first + at, tuple(nodes), brokers)
        for at, nodes in enumerate(wanted.assignments)
    ]
    for at, nodes in enumerate(replicas):
        if len(nodes) != factor:
            raise _bad_assignment(
                f"Partition {first + at} has {len(nodes)} replicas, the topic's have {factor}."
            )
    return replicas


def _with_more_partitions(topic: TopicImage, replicas: list[tuple[int, ...]]) -> TopicImage:
    first = len(topic.partitions)
    added = (
        first_partition_state(topic.name, first + at, nodes) for at, nodes in enumerate(replicas)
    )
    return replace(topic, partitions=(*topic.partitions, *added))


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _size(spec: NewTopic, defaults: Defaults) -> tuple[int, int]:
    """The replication factor and how many partitions."""
    factor, partitions = spec.replication_factor, spec.partitions
    if factor < USE_DEFAULT or factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 for the broker's default.",
        )
    if partitions < USE_DEFAULT or partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions must be larger than 0, or -1 for the broker's default.",
        )
    factor = defaults.replication_factor if factor == USE_DEFAULT else factor
    return factor, defaults.partitions if partitions == USE_DEFAULT else partitions


def _placed_replicas(
    partitions: int,
    factor: int,
    brokers: Mapping[int, BrokerImage],
    start: int,
    stopping: Collection[int],
) -> list[tuple[int, ...]]:
    if factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {factor} cannot be reached: "
            f"only {len(brokers)} broker(s) are registered.",
        )
    staying = {node: broker for node, broker in brokers.items() if node not in stopping}
    if factor <= len(staying):
        return place_replicas(partitions, factor, _racks(staying), start)
    placed = place_replicas(partitions, factor, _racks(brokers), start)
    # Who stops leads nothing that another could.
    return [tuple(sorted(nodes, key=lambda node: node in stopping)) for nodes in placed]
