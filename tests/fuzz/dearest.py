"""The dearest frames that have been found: one large thing, or a very small one, named very often.

What the broker needs for them is made first: a group with a member and an offset whose metadata is
as long as it may be. Each is a frame of a few KB that a client may send without any right.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kbroker.types import ApiKey
from tests.fuzz.corpus import Ids
from tests.fuzz.costs import BOMB, PACKED_ANEW, Candidate
from tests.fuzz.mutate import Maker, framed
from tests.parity.cases._groups import commit, describe, fetch_groups, leave, stable
from tests.parity.requests import body_of, build, header, key_and_version
from tests.parity.talk import Talk

METADATA_CHARS: Final = 4_096  # offset.metadata.max.bytes
TOPIC: Final = 2
CLIENT_METRICS: Final = 16
GROUP: Final = 32
CORRELATION_ID: Final = 7


def dearest(talk: Talk, topic: str, times: int = 2_000) -> Iterator[Candidate]:
    """`talk` is to the broker that they are for."""
    group = _group(talk, topic)
    for name, request in (
        *_found(times),
        *_described(group, topic, times),
        *_offsets(talk, group, topic, times),
        *_left(group, times),
        *_altered(topic, times),
        *_moved(topic, times),
        *_topics(times),
    ):
        yield Candidate(f"{name}, {times} times", _frame(request))


def bombs(ids: Ids) -> Iterator[Candidate]:
    """The dearest codec, below the bound of its unpacked bytes."""
    for name, frame in Maker(1, ids).batches():
        if name.startswith(f"60 {BOMB} by gzip") and name.endswith((PACKED_ANEW, "target-plain")):
            yield Candidate(f"Produce of {name}", frame)


def _frame(request: Any) -> bytes:
    key, version = key_and_version(request)
    return framed(header(key, version, CORRELATION_ID) + body_of(request))


def _group(talk: Talk, topic: str) -> str:
    until = build(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    talk.until(lambda: talk.quietly(until).error_code.value == 0)
    talk.settled("__consumer_offsets")
    member = stable(talk)
    noted = (topic, {0: (5, -1, "x" * METADATA_CHARS)})
    asked = commit(talk, 8, member.group, noted, generation=member.generation, member=member.id)
    answer = talk.quietly(asked)
    assert answer.topics[0].partitions[0].error_code.value == 0, answer
    return member.group


def _found(times: int) -> Iterator[tuple[str, Any]]:
    for kind in (0, 1):
        asked = build(ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=[""] * times)
        yield f"FindCoordinator v4, type {kind}, no key", asked


def _described(group: str, topic: str, times: int) -> Iterator[tuple[str, Any]]:
    for version in (0, 6):
        yield f"DescribeGroups v{version}, a group", describe(version, *[group] * times)
        yield f"DescribeGroups v{version}, no name", describe(version, *[""] * times)
    resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}
    asked = build(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource] * times)
    yield "DescribeConfigs v4, a topic", asked
    for kind, (version, keys) in itertools.product(
        (TOPIC, GROUP, CLIENT_METRICS), ((1, None), (4, None), (4, ["x"]))
    ):
        asked = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            for name in _names(times)
        ]
        case = f"DescribeConfigs v{version}, type {kind}, other names, keys {keys}"
        yield case, build(ApiKey.DESCRIBE_CONFIGS, version, resources=asked)


def _offsets(talk: Talk, group: str, topic: str, times: int) -> Iterator[tuple[str, Any]]:
    for version in (1, 8):
        one = fetch_groups(talk, version, (group, [(topic, [0] * times)]))
        yield f"OffsetFetch v{version}, a partition", one
        several = fetch_groups(talk, version, (group, [(topic, [0])] * times))
        yield f"OffsetFetch v{version}, a topic", several
        none = fetch_groups(talk, version, (group, [("", [])] * times))
        yield f"OffsetFetch v{version}, no topic", none
    for case, topics in (("all of a group", None), ("a group", [(topic, [0])]), ("no topics", [])):
        asked = fetch_groups(talk, 8, *[(group, topics)] * times)
        yield f"OffsetFetch v8, {case}", asked


def _left(group: str, times: int) -> Iterator[tuple[str, Any]]:
    for version in (3, 5):
        for instance in (None, ""):
            asked = leave(version, group, *[("", instance)] * times)
            yield f"LeaveGroup v{version}, instance {instance!r}", asked


def _altered(topic: str, times: int) -> Iterator[tuple[str, Any]]:
    for key, versions in (
        (ApiKey.ALTER_CONFIGS, (0, 2)),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1)),
    ):
        for version in versions:
            for value in (None, ""):
                configs = [_setting(key, "", value)] * times
                asked = _alter(key, version, [_resource(topic, configs)])
                yield f"{key.label} v{version}, key '' of value {value!r}", asked
            asked = _alter(key, version, [_resource("", [])] * times)
            yield f"{key.label} v{version}, resource ''", asked
            distinct = [_setting(key, name, "") for name in _names(times)]
            asked = _alter(key, version, [_resource(topic, distinct)])
            yield f"{key.label} v{version}, unknown keys", asked
            distinct = [_setting(key, name, name) for name in _names(2 * times)]
            asked = _alter(key, version, [_resource(topic, distinct)])
            yield f"{key.label} v{version}, twice as many unknown keys with values", asked
            for kind in (TOPIC, GROUP, CLIENT_METRICS):
                asked = _alter(key, version, [_resource(n, [], kind) for n in _names(times)])
                yield f"{key.label} v{version}, resources of type {kind} of other names", asked


def _moved(topic: str, times: int) -> Iterator[tuple[str, Any]]:
    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    for case, replicas in (("here", [1]), ("nowhere", []), ("a cancellation", None)):
        same = [{"partition_index": 0, "replicas": replicas}] * times
        topics = [{"name": topic, "partitions": same}]
        yield f"{key.label} v1, {case}", build(key, 1, topics=topics, timeout=60_000)
    key = ApiKey.ALTER_REPLICA_LOG_DIRS
    for path in ("/", ""):
        dirs = [{"path": path, "topics": [{"name": topic, "partitions": [*range(times)]}]}]
        yield f"{key.label} v2, partitions to {path!r}", build(key, 2, dirs=dirs)


def _setting(key: ApiKey, name: str, value: str | None) -> Mapping[str, Any]:
    operation = {"config_operation": 0} if key == ApiKey.INCREMENTAL_ALTER_CONFIGS else {}
    return {"name": name, "value": value, **operation}


def _resource(
    name: str, configs: Sequence[Mapping[str, Any]], kind: int = TOPIC
) -> Mapping[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def _names(times: int) -> list[str]:
    """All different, and as short as may be."""
    return [f"{number:x}" for number in range(times)]


def _alter(key: ApiKey, version: int, resources: Sequence[Mapping[str, Any]]) -> Any:
    return build(key, version, resources=resources, validate_only=True)


def _topics(times: int) -> Iterator[tuple[str, Any]]:
    for name in ("", "x"):
        asked = build(ApiKey.DELETE_TOPICS, 1, topic_names=[name] * times, timeout=1_000)
        yield f"DeleteTopics v1, {name!r}", asked
    asked = build(ApiKey.DELETE_TOPICS, 1, topic_names=_names(times), timeout=1_000)
    yield "DeleteTopics v1, names of nothing", asked
    nothing = [{"name": None, "topic_id": None}] * times
    yield "DeleteTopics v6, no name", build(ApiKey.DELETE_TOPICS, 6, topics=nothing, timeout=1_000)
    key = ApiKey.CREATE_TOPICS
    for version in (2, 7):
        new = [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [],
             "configs": []}
            for name in _names(times)
        ]  # fmt: skip
        fields = {"topics": new, "timeout": 60_000, "validate_only": True}
        yield f"CreateTopics v{version}, checked only", build(key, version, **fields)
