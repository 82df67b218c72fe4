"""`kbroker kafka-topics`: topics, with the options and output of Apache Kafka's kafka-topics.sh."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.cli.kafka_tool import (
    KafkaTool,
    connected,
    fail,
    flag,
    given_of,
    in_hash_order,
    option,
    refuse,
    topic_expression,
)
from kbroker.cli.output import say_to_programs
from kbroker.errors import ErrorCode, KafkaError
from kbroker.types import TopicPartition, uuid_text

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.config_messages import ConfigValue
    from kbroker.peer.messages import TopicResult
    from kbroker.peer.placement_messages import ReassignedPartition
    from kbroker.peer.topic_messages import DescribedPartition, DescribedTopic

ACTIONS: Final = ("list", "describe", "create", "alter", "delete")
_REPORTS: Final = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
_REPLICATION_FACTOR_MAX: Final = 32_767
_DEFAULT_CONFIG: Final = 5  # Kafka's ConfigSource of a value that was not set
_COLLIDE: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_')"
    " could collide. To avoid issues it is best to use either, but not both."
)
_TO_CONFIGS: Final = " (To alter topic configurations, the kafka-configs tool can be used.)"
# Options by the actions that take them.
_ONLY_WITH: Final[Mapping[str, tuple[str, ...]]] = {
    "config": ("create",),
    "partitions": ("create", "alter"),
    "replication-factor": ("create",),
    "replica-assignment": ("create", "alter"),
    **dict.fromkeys((*_REPORTS, "topics-with-overrides"), ("describe",)),
    "if-exists": ("alter", "delete", "describe"),
    "if-not-exists": ("create",),
    "exclude-internal": ("list", "describe"),
}


class Asked(NamedTuple):
    """What the options say; `given` are their names."""

    given: frozenset[str]
    topic: str | None
    topic_id: str | None
    configs: tuple[str, ...]
    partitions: int | None
    replication_factor: int | None
    assignment: tuple[tuple[int, ...], ...]
    page: int

    def has(self, name: str) -> bool:
        return name in self.given


def _run(**options: Any) -> int | None:
    asked = _asked(options)
    bootstrap = options["bootstrap_server"]
    with connected(bootstrap, options["command_config"]) as client:
        for action in ACTIONS:
            if asked.has(action):
                return _DOES[action](client, asked)
    return None


def _asked(options: Mapping[str, Any]) -> Asked:
    given = given_of(options)
    actions = [each for each in ACTIONS if each in given]
    if len(actions) != 1:
        refuse(
            "Command must include exactly one action: --list, --describe, --create, --alter or"
            " --delete"
        )
    (action,) = actions
    if "bootstrap-server" not in given:
        refuse("--bootstrap-server must be specified")
    if action not in ("list", "describe") and "topic" not in given:
        refuse('Missing required argument "[topic]"')
    if action == "alter" and "config" in given:
        refuse(
            'Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]"'
            + _TO_CONFIGS
        )
    if action == "alter" and "partitions" not in given:
        refuse('Missing required argument "[partitions]"')
    for name, takers in _ONLY_WITH.items():
        if name in given and action not in takers:
            refuse(f'Option "[{name}]" can\'t be used with option "[{action}]"')
    if action == "create" and "replica-assignment" in given:
        for other in ("partitions", "replication-factor"):
            if other in given:
                refuse(f'Option "[replica-assignment]" can\'t be used with option "[{other}]"')
    _refuse_two_reports(given)
    from kbroker.peer.topic_messages import PARTITIONS_OF_A_PAGE

    return Asked(
        given,
        options["topic"],
        options["topic_id"],
        options["config"],
        options["partitions"],
        options["replication_factor"],
        _assignment(options["replica_assignment"]),
        options["partition_size_limit_per_response"] or PARTITIONS_OF_A_PAGE,
    )


def _refuse_two_reports(given: frozenset[str]) -> None:
    chosen = [each for each in _REPORTS if each in given]
    if chosen and "topics-with-overrides" in given:
        refuse(f'Option "[{chosen[0]}]" can\'t be used with option "[topics-with-overrides]"')


def _assignment(text: str | None) -> tuple[tuple[int, ...], ...]:
    """`1:2,2:3` is partition 0 on the brokers 1 and 2, and partition 1 on 2 and 3."""
    if not text:
        return ()
    made: list[tuple[int, ...]] = []
    for partition, part in enumerate(text.split(",")):
        try:
            brokers = tuple(int(each.strip()) for each in part.split(":"))
        except ValueError as error:
            fail(f'For input string: "{str(error).rpartition(": ")[2][1:-1]}"')
        if len(set(brokers)) < len(brokers):
            twice = dict.fromkeys(each for each in brokers if brokers.count(each) > 1)
            names = ",".join(map(str, twice))
            fail(f"Partition replica lists may not contain duplicate entries: {names}")
        if made and len(brokers) != len(made[0]):
            listed = ", ".join(map(str, brokers))
            fail(f"Partition {partition} has different replication factor: [{listed}]")
        made.append(brokers)
    return tuple(made)


# --- actions --------------------------------------------------------------------------------------


def _create(client: Client, asked: Asked) -> None:
    from kbroker.peer.messages import NewTopic

    name, configs = asked.topic or "", _configs(asked.configs)
    if any(each in name for each in "._"):
        say_to_programs(_COLLIDE)
    factor = asked.replication_factor
    if factor is not None and not 1 <= factor <= _REPLICATION_FACTOR_MAX:
        fail(f"The replication factor must be between 1 and {_REPLICATION_FACTOR_MAX} inclusive")
    if asked.partitions is not None and asked.partitions < 1:
        fail("The partitions must be greater than 0")
    new = NewTopic(name, asked.partitions or -1, factor or -1, configs, asked.assignment)
    (result,) = client.create_topics([new])
    if result.error is ErrorCode.TOPIC_ALREADY_EXISTS and asked.has("if-not-exists"):
        return
    _raise(result)
    say_to_programs(f"Created topic {name}.")


def _configs(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        parts = re.split(r"\s*=\s*", text)
        if len(parts) != 2:
            fail(
                "requirement failed: Invalid topic config: all configs to be added must be in the"
                ' format "key=val".'
            )
        found[parts[0].strip()] = parts[1].strip()
    return found


def _raise(result: TopicResult) -> None:
    if result.error is not ErrorCode.NONE:
        raise KafkaError(result.error, result.message or "")


def _list(client: Client, asked: Asked) -> None:
    for name in _names(client, asked) or [""]:
        say_to_programs(name)


def _names(client: Client, asked: Asked) -> list[str]:
    """Those that the options mean, in their order."""
    exclude = asked.has("exclude-internal")
    known = client.metadata().topics.values()
    names = sorted(each.name for each in known if not (exclude and each.internal))
    if asked.topic is None:
        return names
    wanted = topic_expression(asked.topic)
    return [name for name in names if wanted.fullmatch(name)]


def _require_some(names: Sequence[str], asked: Asked) -> None:
    if asked.topic and not names and not asked.has("if-exists"):
        fail(f"Topic '{asked.topic}' does not exist as expected")


def _alter(client: Client, asked: Asked) -> None:
    names = _names(client, asked)
    _require_some(names, asked)
    if not names:
        return
    there = client.metadata(names).topics
    assignments = {
        name: asked.assignment[len(there[name].partitions) :] for name in names if asked.assignment
    }
    counts = dict.fromkeys(names, asked.partitions or 0)
    for result in client.create_partitions(counts, assignments=assignments):
        _raise(result)


def _delete(client: Client, asked: Asked) -> None:
    names = _names(client, asked)
    _require_some(names, asked)
    if names:
        for result in client.delete_topics(names):
            _raise(result)


# --- describe -------------------------------------------------------------------------------------


def _describe(client: Client, asked: Asked) -> None:
    names = _described_names(client, asked)
    if not names:
        return
    topics = _topics(client, names, asked.page if asked.topic_id is None else None)
    moving = _reassignments(client)
    live = set(client.metadata([]).brokers)
    for topic in topics:
        if topic.error is not ErrorCode.NONE:
            raise KafkaError(topic.error)
        _print(topic, client.topic_configs(topic.name), moving, live, asked)


def _reassignments(client: Client) -> Mapping[TopicPartition, ReassignedPartition]:
    """As the original: none for a user who may see topics, but not the cluster."""
    try:
        return client.reassignments()
    except KafkaError as error:
        if error.code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION):
            return {}
        raise


def _described_names(client: Client, asked: Asked) -> list[str]:
    if asked.topic_id is None:
        names = _names(client, asked)
        _require_some(names, asked)
        return names
    if asked.topic is not None and asked.has("if-exists"):
        say_to_programs(
            "Only topic id will be used when both --topic and --topic-id are specified and topicId"
            " is not Uuid.ZERO_UUID"
        )
    found = [
        each.name
        for each in client.metadata().topics.values()
        if each.topic_id is not None and uuid_text(each.topic_id) == asked.topic_id
    ]
    if not found and not asked.has("if-exists"):
        fail(f"TopicId '{asked.topic_id}' does not exist as expected")
    return found


def _topics(client: Client, names: Sequence[str], page: int | None) -> list[DescribedTopic]:
    """By DescribeTopicPartitions, in pages; without pages, and of a broker without it, by Metadata,
    which knows no eligible leaders."""
    from kbroker.peer.topic_messages import DescribedPartition, DescribedTopic

    if page is not None:
        try:
            return _in_pages(client, names, page)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
    known = client.metadata(names).topics
    return [
        DescribedTopic(
            name,
            known[name].error,
            known[name].topic_id,
            tuple(
                DescribedPartition(each.index, each.leader, each.replicas, each.isr)
                for each in known[name].partitions
            ),
        )
        for name in names
    ]


def _in_pages(client: Client, names: Sequence[str], page: int) -> list[DescribedTopic]:
    from kbroker.peer.topic_messages import decode_describe_topics, encode_describe_topics
    from kbroker.types import ApiKey

    found: dict[str, DescribedTopic] = {}
    cursor = None
    while True:
        got = client.cluster.anywhere(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            partial(encode_describe_topics, names=names, cursor=cursor, partitions_max=page),
            decode_describe_topics,
        )
        for topic in got.topics:
            before = found.get(topic.name)
            whole = (*before.partitions, *topic.partitions) if before else topic.partitions
            found[topic.name] = topic._replace(partitions=whole)
        if got.cursor is None or got.cursor == cursor:
            return [found[name] for name in sorted(found)]
        cursor = got.cursor


def _print(
    topic: DescribedTopic,
    configs: Sequence[ConfigValue],
    moving: Mapping[TopicPartition, ReassignedPartition],
    live: set[int],
    asked: Asked,
) -> None:
    reports = [each for each in _REPORTS if asked.has(each)]
    overrides = asked.has("topics-with-overrides")
    values = {each.name: each for each in configs}
    set_ones = [each for each in in_hash_order(values) if values[each].source != _DEFAULT_CONFIG]
    partitions = sorted(topic.partitions)
    if not reports and (set_ones or not overrides):
        first = moving.get(TopicPartition(topic.name, partitions[0].number))
        say_to_programs(
            f"Topic: {topic.name}"
            + ("" if topic.topic_id is None else f"\tTopicId: {uuid_text(topic.topic_id)}")
            + f"\tPartitionCount: {len(partitions)}"
            + f"\tReplicationFactor: {_factor(partitions[0], first)}"
            + "\tConfigs: "
            + ",".join(f"{name}={_null(values[name].value)}" for name in set_ones)
        )
    if overrides:
        return
    least = int(values["min.insync.replicas"].value or 1) if reports else 1
    for each in partitions:
        move = moving.get(TopicPartition(topic.name, each.number))
        if not reports or any(_is_in(report, each, move, least, live) for report in reports):
            _print_partition(topic.name, each, move)


def _is_in(
    report: str,
    partition: DescribedPartition,
    move: ReassignedPartition | None,
    least: int,
    live: set[int],
) -> bool:
    in_sync = len(partition.isr)
    if report == "under-replicated-partitions":
        return in_sync < _factor(partition, move)
    if report == "unavailable-partitions":
        return partition.leader not in live
    if report == "under-min-isr-partitions":
        return partition.leader < 0 or in_sync < least
    return in_sync == least


def _factor(partition: DescribedPartition, move: ReassignedPartition | None) -> int:
    """Without replicas that are only on their way."""
    if move is None or not set(partition.replicas) & {*move.adding, *move.removing}:
        return len(partition.replicas)
    return len(move.replicas) - len(move.adding)


def _print_partition(
    topic: str, each: DescribedPartition, move: ReassignedPartition | None
) -> None:
    parts = [
        f"Topic: {topic}",
        f"Partition: {each.number}",
        f"Leader: {'none' if each.leader < 0 else each.leader}",
        f"Replicas: {_joined(each.replicas)}",
        f"Isr: {_joined(each.isr)}",
    ]
    if move is not None:
        parts.append(f"Adding Replicas: {_joined(move.adding)}")
        parts.append(f"Removing Replicas: {_joined(move.removing)}")
    parts += [f"Elr: {_joined(each.eligible)}", f"LastKnownElr: {_joined(each.last_known)}"]
    say_to_programs("\t" + "\t".join(parts))


def _joined(nodes: Sequence[int] | None) -> str:
    return "N/A" if nodes is None else ",".join(map(str, nodes))


def _null(value: str | None) -> str:
    return "null" if value is None else value


_DOES: Final = {
    "list": _list,
    "describe": _describe,
    "create": _create,
    "alter": _alter,
    "delete": _delete,
}

command: Final = KafkaTool(
    "kafka-topics",
    subject="topic command",
    callback=_run,
    help="Create, list, describe, grow and delete topics, with the options of kafka-topics.sh.",
    params=[
        option("bootstrap-server", "HOST:PORT,...", "Brokers to ask first."),
        option("command-config", "FILE", "How to authenticate."),
        flag("list", "List topics."),
        flag("create", "Create a topic."),
        flag("delete", "Delete topics."),
        flag("alter", "Add partitions to topics."),
        flag("describe", "Show partitions, replicas and settings of topics."),
        option("topic", "TOPIC", "The topic; except with --create a regular expression."),
        option("topic-id", "ID", "The topic to describe, by its id."),
        option("config", "NAME=VALUE", "A setting of the new topic.", multiple=True),
        option("partitions", "COUNT", "How many there are to be.", type=int),
        option("replication-factor", "COUNT", "Replicas of each partition.", type=int),
        option("replica-assignment", "BROKER:...,...", "The brokers of each partition."),
        flag(_REPORTS[0], "Only partitions of which replicas are not in sync."),
        flag(_REPORTS[1], "Only partitions without a leader."),
        flag(_REPORTS[2], "Only partitions with fewer in-sync replicas than their minimum."),
        flag(_REPORTS[3], "Only partitions with as many in-sync replicas as their minimum."),
        flag("topics-with-overrides", "Only topics with settings of their own."),
        flag("if-exists", "No error if the topic is not there."),
        flag("if-not-exists", "No error if the topic is there already."),
        flag("exclude-internal", "Without internal topics."),
        option("partition-size-limit-per-response", "COUNT", "Partitions in a page.", type=int),
    ],
)
