"""`kbroker kafka-get-offsets`: offsets of partitions, as kafka-get-offsets.sh prints them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kbroker.cli.kafka_tool import (
    KafkaTool,
    connected,
    fail,
    flag,
    option,
    refuse,
    text_of,
    topic_expression,
)
from kbroker.cli.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, number_of, unsigned_of
from kbroker.cli.output import say, say_to_programs
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.partitions import by_partition

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.types import TopicPartition

Wanted = Callable[[str, int], bool]

# The words of --time, in the order of Kafka's message. `kbroker.peer.messages` has the same.
_WORDS: Final[Mapping[str, int]] = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_RULE: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?", re.ASCII)


def _run(**options: Any) -> None:
    if options["bootstrap_server"] is None:
        refuse('Missing required argument "[bootstrap-server]"')
    if options["topic_partitions"] is not None and (
        options["topic"] is not None or options["partitions"] is not None
    ):
        fail("--topic-partitions cannot be used with --topic or --partitions")
    timestamp = _timestamp(options["time"])
    wanted = _wanted(options)
    with connected(options["bootstrap_server"], options["command_config"]) as client:
        partitions = _matching(client, wanted, internal=not options["exclude_internal_topics"])
        found = _offsets(client, partitions, timestamp)
    for where in by_partition(found):
        say_to_programs(f"{where.topic}:{where.partition}:{found[where]}")


def _timestamp(text: str) -> int:
    if text in _WORDS:
        return _WORDS[text]
    if (timestamp := number_of(text, LONG_MIN, LONG_MAX)) is not None:
        return timestamp
    known = " / ".join(f"{number} or {word}" for word, number in _WORDS.items())
    fail(
        f"Malformed time argument {text}. Please use {known}, or a specified long format timestamp"
    )


def _wanted(options: Mapping[str, Any]) -> Wanted:
    if options["topic_partitions"] is not None:
        return _any_of(map(_of_rule, _split(options["topic_partitions"])))
    text = options["topic"]
    topics = topic_expression(".*" if text is None else text)
    numbers = {_number(each, options["partitions"]) for each in _split(options["partitions"] or "")
               if each}  # fmt: skip
    return lambda topic, partition: (
        topics.fullmatch(topic) is not None and (not numbers or partition in numbers)
    )


def _split(text: str) -> list[str]:
    """As Java does: empty parts at the end are none, except of an empty text."""
    return text.rstrip(",").split(",")


def _number(text: str, given: str) -> int:
    number = number_of(text, INT_MIN, INT_MAX)
    if number is None:
        fail(
            "--partitions expects a comma separated list of numeric partition ids,"
            f" but received: {given}"
        )
    return number


def _any_of(rules: Iterable[Wanted]) -> Wanted:
    every = list(rules)
    return lambda topic, partition: any(rule(topic, partition) for rule in every)


def _of_rule(text: str) -> Wanted:
    """Of TOPIC, TOPIC:3, TOPIC:3-7 without the last, TOPIC:3- and TOPIC:-7; every topic where its
    expression is left out."""
    match = _RULE.fullmatch(text)
    if match is None:
        fail(f"Invalid rule specification: {text}")
    topics = topic_expression(match[1] or ".*")
    only, low, high = (_bound(each) for each in match.groups()[1:])
    if only is not None:
        low, high = only, only + 1
    first, end = low or 0, INT_MAX + 1 if high is None else high
    return lambda topic, partition: topics.fullmatch(topic) is not None and first <= partition < end


def _bound(digits: str | None) -> int | None:
    if not digits:
        return None
    bound = unsigned_of(digits, INT_MAX)
    if bound is None:
        fail(f'For input string: "{digits}"')
    return bound


def _matching(client: Client, wanted: Wanted, *, internal: bool) -> list[TopicPartition]:
    """Those with a leader: without one there is nothing to ask."""
    from kbroker.types import TopicPartition

    matching = {
        TopicPartition(topic.name, partition.index): partition.leader
        for topic in client.metadata().topics.values()
        if internal or not topic.internal
        for partition in topic.partitions
        if wanted(topic.name, partition.index)
    }
    if not matching:
        fail("Could not match any topic-partitions with the specified filters")
    for where in by_partition(matching):
        if matching[where] < 0:
            _skip(where, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE))
    return [where for where, leader in matching.items() if leader >= 0]


def _offsets(
    client: Client, partitions: Iterable[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """Of partitions that have such an offset."""
    asked = dict.fromkeys(partitions, timestamp)
    try:
        found = client.list_offsets(asked)
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        for where in by_partition(asked):
            _skip(where, error)
        return {}
    for where in by_partition({each: 0 for each in found}):
        if found[where].error is not ErrorCode.NONE:
            _skip(where, KafkaError(found[where].error))
    return {
        where: result.offset
        for where, result in found.items()
        if result.error is ErrorCode.NONE and result.offset >= 0
    }


def _skip(where: TopicPartition, error: KafkaError) -> None:
    say(
        f"Skip getting offsets for topic-partition {where} due to error: {text_of(error)}",
        err=True,
    )


command: Final = KafkaTool(
    "kafka-get-offsets",
    before="Error occurred: ",
    callback=_run,
    help="Print offsets of partitions, with the options of kafka-get-offsets.sh.",
    params=[
        option("bootstrap-server", "HOST:PORT,...", "Brokers to ask first."),
        option("command-config", "FILE", "How to authenticate."),
        option("topic", "TOPIC", "A regular expression; of every topic if left out."),
        option("topic-partitions", "TOPIC[:N|:N-M],...", "Topics with their partitions."),
        option("partitions", "N,...", "Of these ones alone."),
        option(
            "time", "WHEN",
            f"{', '.join(_WORDS)}, or a timestamp in milliseconds.",
            default="latest",
        ),
        flag("exclude-internal-topics", "Without internal topics."),
    ],
)  # fmt: skip
