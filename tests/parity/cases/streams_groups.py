"""StreamsGroupHeartbeat (88), StreamsGroupDescribe (89), and streams groups in other APIs.

A group has one member in most cases: when a second one gets its tasks depends on pauses that are
ours. Groups do not wait for more members, but for the case of that wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._configs import GROUP, SET, incremental
from tests.parity.cases._groups import delete_groups, describe
from tests.parity.data import topic
from tests.parity.requests import build
from tests.parity.talk import Talk

book = Book(setup="streams groups")
cases = book.cases

NOT_FOUND = 69
OFFSETS_PARTITIONS = 50
PAUSES = {"streams.initial.rebalance.delay.ms", "streams.assignment.interval.ms"}
NO_TASKS: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
Topology = dict[str, Any]


def part(name: str, sources: list[str], **more: Any) -> dict[str, Any]:
    return {"subtopology_id": name, "source_topics": sources, **more}


def info(name: str, partitions: int = 0, factor: int = 1, **configs: str) -> dict[str, Any]:
    pairs = [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {"name": name, "partitions": partitions, "replication_factor": factor,
            "topic_configs": pairs}  # fmt: skip


def topology(*parts: dict[str, Any], epoch: int = 0) -> Topology:
    return {"epoch": epoch, "subtopologies": list(parts)}


def join(group: str, member: str, what: Topology | None, **how: Any) -> Any:
    fields = {
        "group_id": group, "member_id": member, "member_epoch": 0, "rebalance_timeout": 60_000,
        "endpoint_information_epoch": -1, "topology": what, "process_id": f"process of {member}",
        "client_tags": [], **NO_TASKS, **how,
    }  # fmt: skip
    return build(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, **fields)


def beat(group: str, member: str, epoch: int, **how: Any) -> Any:
    fields = {"group_id": group, "member_id": member, "member_epoch": epoch,
              "endpoint_information_epoch": -1, **how}  # fmt: skip
    return build(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, **fields)


def look(*groups: str, operations: bool = False) -> Any:
    return build(
        ApiKey.STREAMS_GROUP_DESCRIBE,
        0,
        group_ids=list(groups),
        include_authorized_operations=operations,
    )


def active(name: str, *partitions: int) -> dict[str, Any]:
    return {**NO_TASKS, "active_tasks": [{"subtopology_id": name, "partitions": list(partitions)}]}


def named(talk: Talk) -> str:
    """A group with a coordinator."""
    group = talk.name("g")
    talk.until(lambda: talk.quietly(beat(group, "m", 3)).error_code.value == NOT_FOUND)
    return group


def with_topics(talk: Talk, *counts: int) -> list[str]:
    """A group without pauses, and topics that its coordinator knows."""
    names = [topic(talk, f"t{place}", partitions=count) for place, count in enumerate(counts)]
    group = at_once(talk)
    know(talk, group, names)
    return [group, *names]


def know(talk: Talk, group: str, names: list[str]) -> None:
    """Apache Kafka has a coordinator for each partition of the groups, and each has an image."""
    partition = partition_for(group, OFFSETS_PARTITIONS)
    beside = (f"{group}-{number}" for number in count())
    probe = next(each for each in beside if partition_for(each, OFFSETS_PARTITIONS) == partition)
    asked = join(probe, "p", topology(part("0", names)))

    def is_known() -> bool:
        answer = talk.quietly(asked)
        return not answer.error_code.value and all(each.status_code != 1 for each in answer.status)

    talk.until(is_known)


def at_once(talk: Talk) -> str:
    """A group without pauses."""
    group = named(talk)
    change = [(key, SET, "0") for key in PAUSES]
    talk.quietly(incremental(1, (GROUP, group, change)))
    wanted = build(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=[{"resource_type": GROUP, "resource_name": group}]
    )

    def is_there() -> bool:
        (found,) = talk.quietly(wanted).results
        return {each.name for each in found.configs if each.value == "0"} >= PAUSES

    talk.until(is_there)
    return group


INVALID: dict[str, dict[str, Any]] = {
    "no group": {"group_id": ""},
    "a blank group": {"group_id": " "},
    "no member": {"member_id": ""},
    "a blank member": {"member_id": " "},
    "a member of 36": {"member_id": "m" * 36},
    "a member of 37": {"member_id": "m" * 37},
    "no rack": {"rack_id": ""},
    "an instance": {"instance_id": "i"},
    "no timeout": {"rebalance_timeout": -1},
    "a timeout of 0": {"rebalance_timeout": 0},
    "no topology": {"topology": None},
    "no process": {"process_id": None},
    "no tags": {"client_tags": None},
    "no active tasks": {"active_tasks": None},
    "no tasks": {"active_tasks": None, "standby_tasks": None, "warmup_tasks": None},
    "active tasks": active("0", 0),
    "warm-up tasks": {"warmup_tasks": [{"subtopology_id": "0", "partitions": [0]}]},
    "offsets": {"task_offsets": []},
    "end offsets": {"task_end_offsets": []},
    "an epoch": {"member_epoch": -3},
    "an epoch to come back": {"member_epoch": -2},
    "an epoch and a topology": {"member_epoch": 1},
}


@book.case("a first request", over=INVALID)
def invalid(talk: Talk, wrong: Mapping[str, Any]) -> None:
    fields = {"group_id": named(talk), "member_id": "m", **wrong}
    what = fields.pop("topology", topology(part("0", ["t"])))
    talk.ask(join(fields.pop("group_id"), fields.pop("member_id"), what, **fields))


WRONG: dict[str, list[dict[str, Any]]] = {
    "nothing": [],
    "no topics": [part("0", [])],
    "a pattern": [part("0", ["t"], source_topic_regex=["t.*"])],
    "an internal topic": [part("0", ["__consumer_offsets"])],
    "an invalid name": [part("0", ["a b"])],
    "a changelog with partitions": [part("0", ["t"], state_changelog_topics=[info("c", 2)])],
    "a topic that is not there": [part("0", ["t"])],
}


@book.case("a topology", over=WRONG)
def topologies(talk: Talk, wrong: list[dict[str, Any]]) -> None:
    group = at_once(talk)
    talk.ask(join(group, "m", topology(*wrong)))
    talk.ask(look(group))


@book.case("a group that there is none of")
def nothing(talk: Talk) -> None:
    group = talk.name("g")
    talk.ask(beat(group, "m", 3))
    talk.ask(beat(group, "m", -1))
    talk.ask(look(group, ""))


@book.case("the life of a member")
def life(talk: Talk) -> None:
    group, name = with_topics(talk, 2)
    what = topology(part("0", [name]))
    talk.ask(join(group, "m", what))
    talk.ask(beat(group, "m", 2))
    talk.ask(beat(group, "m", 2, **active("0", 0, 1)))
    talk.ask(beat(group, "m", 2, **active("0", 2)))
    talk.ask(beat(group, "m", 2, **active("1", 0)))
    talk.ask(beat(group, "m", 2, active_tasks=[]))
    talk.ask(look(group))
    talk.ask(look(group, operations=True))
    talk.ask(beat(group, "m", 3))
    talk.ask(beat(group, "m", 1))
    talk.ask(beat(group, "other", 2))
    talk.ask(join(group, "m", topology(part("0", [name]), part("1", [name]))))
    talk.ask(join(group, "m", what))
    talk.ask(join(group, "m", what, rack_id="r"))
    talk.ask(describe(6, group))
    talk.ask(build(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=["streams"]),
             view=lambda answer: [each for each in answer["groups"]
                                  if each["group_id"] == group])  # fmt: skip
    talk.ask(delete_groups(2, group))
    talk.ask(beat(group, "m", -1))
    talk.ask(look(group))
    talk.ask(beat(group, "m", -1))
    talk.ask(join(group, "n", topology(part("0", [name], repartition_sink_topics=[name]))))
    talk.ask(beat(group, "n", -1))
    talk.ask(delete_groups(2, group))
    talk.ask(look(group))


@book.case("topics of the application")
def internal_topics(talk: Talk) -> None:
    group, name = with_topics(talk, 3)
    half, store = talk.name("half"), talk.name("store")
    what = topology(
        part("0", [name], repartition_sink_topics=[half]),
        part("1", [], repartition_source_topics=[info(half)],
             state_changelog_topics=[info(store, cleanup_policy="compact")]),
    )  # fmt: skip
    talk.ask(join(group, "m", what))
    talk.settled(half, store)
    seen = [talk.quietly(beat(group, "m", 2))]

    def has_tasks() -> bool:
        seen.append(talk.quietly(beat(group, "m", seen[-1].member_epoch)))
        return any(each.active_tasks for each in seen)

    talk.until(has_tasks)
    found = next(each for each in seen if each.active_tasks)
    talk.note("epoch with tasks", found.member_epoch)
    talk.note("tasks", sorted((each.subtopology_id, sorted(map(int, each.partitions)))
                              for each in found.active_tasks))  # fmt: skip
    talk.ask(look(group))


@book.case("topics that cannot be created")
def uncreatable(talk: Talk) -> None:
    group, name = with_topics(talk, 1)
    store = talk.name("store")
    what = topology(part("0", [name], state_changelog_topics=[info(store, factor=5)]))
    talk.ask(join(group, "m", what))

    def has_failed() -> bool:
        answer = talk.quietly(beat(group, "m", 2))
        return any("Creation failed" in each.status_detail for each in answer.status or ())

    talk.until(has_failed)
    talk.ask(beat(group, "m", 2))


@book.case("topics with another number of partitions")
def incorrect(talk: Talk) -> None:
    group, name, store = with_topics(talk, 3, 2)
    talk.ask(join(group, "m", topology(part("0", [name], state_changelog_topics=[info(store)]))))
    talk.ask(look(group))


@book.case("topics that are joined")
def joined(talk: Talk) -> None:
    group, one, two = with_topics(talk, 1, 2)
    groups = [{"source_topics": [0, 1], "source_topic_regex": [], "repartition_source_topics": []}]
    talk.ask(join(group, "m", topology(part("0", [one, two], copartition_groups=groups))))


@book.case("the first target waits")
def waits(talk: Talk) -> None:
    group, name = named(talk), topic(talk, partitions=2)
    know(talk, group, [name])
    what = topology(part("0", [name]))
    talk.ask(join(group, "m", what))
    talk.ask(beat(group, "m", 1))
    talk.ask(look(group))
    seen = [talk.quietly(beat(group, "m", 1))]

    def has_tasks() -> bool:
        seen.append(talk.quietly(beat(group, "m", seen[-1].member_epoch)))
        return any(each.active_tasks for each in seen)

    talk.until(has_tasks)
    talk.note("epoch with tasks", next(e for e in seen if e.active_tasks).member_epoch)


@book.case("a member with an endpoint")
def endpoint(talk: Talk) -> None:
    group, name = with_topics(talk, 2)
    what = topology(part("0", [name]))
    there = {"user_endpoint": {"host": "here", "port": 7}}
    answer = talk.ask(join(group, "m", what, **there))
    epoch = 0 if answer is None else answer.endpoint_information_epoch
    talk.ask(beat(group, "m", 2, endpoint_information_epoch=epoch))
    talk.ask(beat(group, "m", 2))
    talk.ask(look(group))


@book.case("the application is to end")
def shutdown(talk: Talk) -> None:
    group, name = with_topics(talk, 1)
    talk.ask(join(group, "m", topology(part("0", [name]))))
    talk.ask(beat(group, "m", 2, shutdown_application=True))
    talk.ask(beat(group, "m", 2))
    talk.ask(beat(group, "m", -1))


@book.case("two members")
def two(talk: Talk) -> None:
    group, name = with_topics(talk, 4)
    what = topology(part("0", [name]))
    talk.ask(join(group, "a", what))
    talk.quietly(beat(group, "a", 2, **active("0", 0, 1, 2, 3)))
    talk.quietly(join(group, "b", what))
    epochs, owned = {"a": 2, "b": 0}, {"a": [0, 1, 2, 3], "b": []}

    def settled() -> bool:
        for member in ("a", "b"):
            says = active("0", *owned[member]) if owned[member] else NO_TASKS
            if epochs[member] == 0:
                answer = talk.quietly(join(group, member, what))
            else:
                answer = talk.quietly(beat(group, member, epochs[member], **says))
            epochs[member] = answer.member_epoch
            if answer.active_tasks is not None:
                owned[member] = [
                    int(index) for each in answer.active_tasks for index in each.partitions
                ]
        return bool(owned["b"]) and len(owned["a"]) + len(owned["b"]) == 4

    talk.until(settled)
    talk.note("tasks", [len(owned["a"]), len(owned["b"])])
    talk.note("kept", set(owned["a"]) <= {0, 1, 2, 3})
    talk.note("epochs", epochs)


@book.case("an empty classic group")
def classic(talk: Talk) -> None:
    group, name = with_topics(talk, 1)
    offsets = [{"name": name, "partitions": [
        {"partition_index": 0, "committed_offset": 5, "committed_metadata": None}]}]  # fmt: skip
    talk.ask(build(ApiKey.OFFSET_COMMIT, 9, group_id=group, member_id="",
                   generation_id_or_member_epoch=-1, topics=offsets))  # fmt: skip
    talk.ask(join(group, "m", topology(part("0", [name]))))
    for epoch, version in ((2, 9), (1, 9), (3, 9), (2, 8)):
        talk.ask(build(ApiKey.OFFSET_COMMIT, version, group_id=group, member_id="m",
                       generation_id_or_member_epoch=epoch, topics=offsets))  # fmt: skip
    for epoch in (2, 1):
        talk.ask(build(ApiKey.OFFSET_FETCH, 9, require_stable=False, groups=[
            {"group_id": group, "member_id": "m", "member_epoch": epoch,
             "topics": [{"name": name, "partition_indexes": [0]}]}]))  # fmt: skip
    talk.ask(build(ApiKey.OFFSET_DELETE, 0, group_id=group,
                   topics=[{"name": name, "partitions": [{"partition_index": 0}]}]))  # fmt: skip
