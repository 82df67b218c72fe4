"""What `kbroker kafka-consumer-groups` changes: it deletes groups and offsets, and resets offsets.

Offsets are planned as `kbroker group reset` plans them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.cli.kafka_consumer_groups import SCENARIOS, Asked, say_error
from kbroker.cli.kafka_groups_describe import (
    Column,
    print_columns,
    refusal_of,
    require_coordinator,
)
from kbroker.cli.kafka_tool import (
    exception_of,
    fail,
    in_hash_order,
    partition_hash,
    refuse,
    words_of,
)
from kbroker.cli.offset_lines import FILE_BYTES_MAX, offset_line, parse_lines
from kbroker.cli.output import say, say_to_programs
from kbroker.errors import ErrorCode, KafkaError, UsageError
from kbroker.findings.moments import parse_span

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.groups import Groups
    from kbroker.peer.offset_reset import Reset
    from kbroker.types import TopicPartition

Offsets = Mapping["TopicPartition", int]

_TOPIC: Final = Column("TOPIC", 15, True)
_MOMENT: Final = re.compile(
    r"(\d{1,4})-(\d{1,2})-(\d{1,2})T(\d{1,2}):(\d{1,2}):(\d{1,2})\.(\d{1,3})"
    r"(?:Z|([+-])(\d\d):?(\d\d)?)",
    re.ASCII,
)
_SPAN: Final = re.compile(r"[+-]?P(?=.)", re.IGNORECASE)
_IN_ANOTHER: Final = "java.util.concurrent.ExecutionException: "
# Errors of a group among those of its partitions.
_OF_GROUP: Final = (
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.NON_EMPTY_GROUP,
)


# --- groups ---------------------------------------------------------------------------------------


def delete(client: Client, asked: Asked) -> None:
    from kbroker.peer.groups import Groups

    groups = Groups(client)
    failed: dict[str, str] = {}
    done: list[str] = []
    for name in in_hash_order(asked.groups):
        words = refusal_of(groups, name)
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED if words else groups.delete(name)
        if error is ErrorCode.NONE:
            done.append(name)
        else:
            failed[name] = exception_of(error, words)
    names = ", ".join(f"'{name}'" for name in done)
    if not failed:
        say_to_programs(f"Deletion of requested consumer groups ({names}) was successful.")
        return
    say_error("Deletion of some consumer groups failed:")
    for name, text in failed.items():
        say_to_programs(f"* Group '{name}' could not be deleted due to: {text}")
    if done:
        say_to_programs("")
        say_to_programs(f"These consumer groups were deleted successfully: {names}")


# --- their offsets --------------------------------------------------------------------------------


def delete_offsets(client: Client, asked: Asked) -> None:
    from kbroker.peer.groups import Groups
    from kbroker.types import TopicPartition

    (group,) = asked.groups
    errors: dict[TopicPartition, str] = {}
    wanted: list[TopicPartition] = []
    for topic, numbers in map(_chosen, asked.topics):
        if not numbers:
            error, numbers = _partitions(client, topic)
            if error is not ErrorCode.NONE:
                errors[TopicPartition(topic, -1)] = exception_of(error)
        wanted += [TopicPartition(topic, number) for number in numbers]
    groups = Groups(client)
    refused = refusal_of(groups, group)
    try:
        found = groups.delete_offsets(group, wanted)
    except KafkaError as error:
        if error.code not in _OF_GROUP:
            raise
        say_error(words_of(error.code))
        errors |= dict.fromkeys(wanted, exception_of(error.code, refused))
    else:
        if any(found.values()):
            say_error("Encountered some partition-level error, see the follow-up details.")
        else:
            say_to_programs(f"Request succeeded for deleting offsets from group {group}.")
        for where, code in found.items():
            errors[where] = "" if code is ErrorCode.NONE else exception_of(code)
    rows = [
        [
            where.topic, where.partition if where.partition >= 0 else "-",
            f"Error: {errors[where]}" if errors[where] else "Successful",
        ]
        for where in sorted(errors)
    ]  # fmt: skip
    print_columns([_TOPIC, Column("PARTITION", 10), Column("STATUS", 15)], rows)


def _chosen(text: str) -> tuple[str, list[int]]:
    """TOPIC, or TOPIC:0,1,2."""
    topic, colon, rest = text.partition(":")
    if not colon:
        return text, []
    numbers = []
    for each in rest.split(","):
        if not (each.isascii() and each.isdecimal() and len(each) < 10):
            refuse(f"Invalid partition '{each}' specified in topic arg '{text}''")
        numbers.append(int(each))
    return topic, numbers


def _partitions(client: Client, topic: str) -> tuple[ErrorCode, list[int]]:
    found = client.metadata([topic]).topics.get(topic)
    if found is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
    return found.error, sorted(each.index for each in found.partitions)


# --- resets ---------------------------------------------------------------------------------------


def reset(client: Client, asked: Asked) -> None:
    from kbroker.peer.group_descriptions import DEAD, describe_group
    from kbroker.peer.groups import Groups

    groups = Groups(client)
    states: dict[str, str] = {}
    for name in asked.groups:
        require_coordinator(groups, name, _IN_ANOTHER)
        described = describe_group(groups, name)
        states[name] = DEAD if described is None else described.state
    plans: dict[str, Offsets] = {}
    for name in in_hash_order(asked.groups):
        if states[name] not in ("Empty", DEAD):
            say_error(
                f"Assignments can only be reset if the group '{name}' is inactive, but the current"
                f" state is {states[name]}."
            )
            plans[name] = {}
            continue
        plans[name] = _plan(client, groups, name, asked)
        if asked.has("execute") and plans[name]:
            _commit(groups, name, plans[name])
    if asked.has("export"):
        _export(plans, with_group=len(asked.options["group"]) != 1)
    else:
        _print(plans)


def _commit(groups: Groups, name: str, offsets: Offsets) -> None:
    try:
        errors = groups.commit(name, offsets)
    except KafkaError as error:
        errors = dict.fromkeys(offsets, error.code)
    refused = [str(where) for where in _in_hash_order(offsets) if errors.get(where)]
    if refused:
        fail(f"Failed altering group offsets for the following partitions: [{', '.join(refused)}]")


def _plan(client: Client, groups: Groups, name: str, asked: Asked) -> Offsets:
    from kbroker.peer.offset_reset import Mode, committed_offsets, planned

    given = _given(asked, name) if asked.has("from-file") else {}
    if asked.has("from-file") and not given:
        say_error(f"No reset plan for group {name} found")
        return {}
    wanted = _reset(asked, given)
    committed = committed_offsets(groups, name)
    partitions = _scope(client, asked, committed, given)
    if wanted.mode is Mode.SHIFT_BY:
        for where in partitions:
            if where not in committed:
                refuse(
                    f"Cannot shift offset for partition {where} since there is no current"
                    " committed offset"
                )
    plan = planned(client, committed, partitions, wanted)
    for where in _in_hash_order(plan.too_old):
        say_to_programs("")
        say_to_programs(
            f"Warn: Partition {where.partition} from topic {where.topic} is empty. Falling back to"
            " latest known offset."
        )
    for warning in plan.warnings:
        say(f"WARN: {warning}", err=True)
    return plan.after


def _scope(
    client: Client, asked: Asked, committed: Offsets, given: Offsets
) -> list[TopicPartition]:
    from kbroker.types import TopicPartition

    if given:
        return _existing(client, list(given))
    if asked.has("all-topics"):
        return _existing(client, sorted(committed))
    found: list[TopicPartition] = []
    named: list[TopicPartition] = []
    for topic, numbers in map(_chosen, asked.topics):
        if numbers:
            named += [TopicPartition(topic, number) for number in numbers]
            continue
        error, numbers = _partitions(client, topic)
        if error is not ErrorCode.NONE:
            fail(words_of(error))
        found += [TopicPartition(topic, number) for number in numbers]
    return [*_existing(client, named), *found]


def _existing(client: Client, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """All of them; an error of the command: one is not there."""
    if not partitions:
        return []
    topics = client.metadata(sorted({where.topic for where in partitions})).topics
    there = {(topic.name, each.index) for topic in topics.values() for each in topic.partitions}
    for topic in topics.values():
        if topic.error is not ErrorCode.NONE:
            fail(_IN_ANOTHER + exception_of(topic.error))
    missing = [str(where) for where in partitions if tuple(where) not in there]
    if missing:
        fail(f'The partitions "{",".join(missing)}" do not exist')
    return list(dict.fromkeys(partitions))


def _reset(asked: Asked, given: Offsets) -> Reset:
    from kbroker.clock import SystemClock
    from kbroker.peer.offset_reset import Mode, Reset

    scenario = next(each for each in SCENARIOS if asked.has(each))
    match scenario:
        case "from-file":
            return Reset(Mode.TO_GIVEN, given=given)
        case "to-datetime":
            return Reset(Mode.TO_MOMENT, _moment(asked.text(scenario)))
        case "by-duration":
            return Reset(Mode.TO_MOMENT, SystemClock().wall_ms() - _duration(asked.text(scenario)))
        case "to-offset" | "shift-by":
            return Reset(Mode(scenario.replace("-", "_")), asked.number(scenario))
        case _:
            return Reset(Mode(scenario.replace("-", "_")))


def _moment(text: str) -> int:
    """As the original reads it: with milliseconds, and in UTC where no zone is named."""
    from datetime import UTC, datetime

    day, _, hour = text.partition("T")
    if not day or not hour:
        fail(
            "java.text.ParseException: Error parsing timestamp. It does not contain a 'T' according"
            " to ISO8601 format"
        )
    whole = text if any(each in hour for each in "Z+-") else f"{text}Z"
    match = _MOMENT.fullmatch(whole)
    try:
        if match is None:
            raise ValueError
        at = datetime(*map(int, match.groups()[:6]), tzinfo=UTC)  # type: ignore[arg-type,misc]
    except ValueError:
        fail(f'java.text.ParseException: Unparseable date: "{whole}"')
    ahead_ms = 60_000 * (60 * int(match[9] or 0) + int(match[10] or 0))
    if match[8] == "-":
        ahead_ms = -ahead_ms
    return round(at.timestamp()) * 1000 + int(match[7]) - ahead_ms


def _duration(text: str) -> int:
    """Milliseconds; a negative one is in the future."""
    sign = -1 if text.startswith("-") else 1
    try:
        if not _SPAN.match(text):
            raise UsageError(text)
        return sign * parse_span(text.lstrip("+-"))
    except UsageError:
        fail("Text cannot be parsed to a Duration")


def _given(asked: Asked, group: str) -> Offsets:
    """The offsets of this group in the file; where several groups are named, of lines that name
    it."""
    name = asked.text("from-file")
    try:
        with open(name, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        return parse_lines(data, group, of_groups=len(asked.options["group"]) != 1)
    except (OSError, UnicodeDecodeError):
        fail(f"java.io.IOException: Unable to read file {name}")


def _export(plans: Mapping[str, Offsets], *, with_group: bool) -> None:
    for name in in_hash_order(plans):
        for where in _in_hash_order(plans[name]):
            line = offset_line(where.topic, where.partition, plans[name][where])
            say_to_programs(f"{offset_line(name)},{line}" if with_group else line)
    say_to_programs("")


def _print(plans: Mapping[str, Offsets]) -> None:
    rows = [
        [name, where.topic, where.partition, plans[name][where]]
        for name in in_hash_order(plans)
        for where in _in_hash_order(plans[name])
    ]
    width = max([15, *map(len, plans)])
    print_columns(
        [Column("GROUP", width), _TOPIC, Column("PARTITION", 10), Column("NEW-OFFSET", 0)], rows
    )


def _in_hash_order(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    return list(in_hash_order(partitions, partition_hash))
