"""Requests that Python handlers serve, one after the other on one connection: CPU for each.

The broker's processor time is taken around so many seconds of requests; every answer is checked.
JoinGroup is of the only member of a group, who joins again: it has the next generation at once.
CreateTopics makes topics that are deleted outside of the window.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Final, NamedTuple

from perf import groups, members
from perf.before_after.lines import Taken
from perf.brokers import Broker
from perf.cells import CellError
from perf.client import LATEST, Client
from perf.process import Watch, cpu_ns
from perf.requests import CREATE_TOPICS, LIST_OFFSETS, Topic
from perf.wire import Reader, Writer

DESCRIBE_CONFIGS: Final = 32
WARM_REQUESTS: Final = 200
CREATED_MAX: Final = 200  # topics of a block
TOPIC_RESOURCE: Final = 2


class Asked(NamedTuple):
    """A request without its header."""

    key: int
    version: int
    body: bytes


# The requests of a cell, for a topic of one partition.
Requests = Callable[[Client, Topic], Iterator[Asked]]


def _join_group(client: Client, topic: Topic) -> Iterator[Asked]:
    member = members.join(client, topic.name)
    body = Writer().string(member.group).put("ii", members.SESSION_MS, members.SESSION_MS)
    body.string(member.member_id).string("consumer").count(1).string("range").bytes(bytes(8))
    return repeat(Asked(members.JOIN_GROUP, 2, bytes(body.data)))


def _offset_fetch(client: Client, topic: Topic) -> Iterator[Asked]:
    members.join(client, topic.name)  # so that there is a coordinator
    body = Writer().string(topic.name).count(1).string(topic.name).count(1).put("i", 0)
    return repeat(Asked(groups.OFFSET_FETCH, groups.FETCH_VERSION, bytes(body.data)))


def _describe_configs(_client: Client, topic: Topic) -> Iterator[Asked]:
    body = Writer().count(1).put("b", TOPIC_RESOURCE).string(topic.name).count(-1).put("?", False)
    return repeat(Asked(DESCRIBE_CONFIGS, 1, bytes(body.data)))


def _list_offsets(_client: Client, topic: Topic) -> Iterator[Asked]:
    body = Writer().put("i", -1).count(1).string(topic.name).count(1).put("iq", 0, LATEST)
    return repeat(Asked(LIST_OFFSETS, 1, bytes(body.data)))


def _create_topics(_client: Client, topic: Topic) -> Iterator[Asked]:
    for name in _names(topic):
        body = Writer().count(1).string(name).put("ih", 1, 1).count(0).count(0)
        yield Asked(CREATE_TOPICS, 4, bytes(body.put("i?", 30_000, False).data))


def _names(topic: Topic) -> Iterator[str]:
    for number in range(CREATED_MAX + 1):
        yield f"{topic.name}-{number}"


APIS: Final[dict[str, Requests]] = {
    "join-group": _join_group,
    "offset-fetch": _offset_fetch,
    "describe-configs": _describe_configs,
    "create-topics": _create_topics,
    "list-offsets": _list_offsets,
}


def _error_code(cell: str, answer: Reader) -> int:
    """The one that matters: of the group, the resource, the topic or the partition."""
    if cell != "list-offsets":
        answer.get("i")  # throttle time
    if cell == "join-group":
        return answer.get("h")
    answer.count()
    if cell == "describe-configs":
        return answer.get("h")
    answer.string()
    if cell == "create-topics":
        return answer.get("h")
    answer.count()
    answer.get("i")
    if cell == "offset-fetch":
        answer.get("q")
        answer.get("i")
        answer.string()
    return answer.get("h")


@contextmanager
def _topic(client: Client, name: str) -> Iterator[Topic]:
    topic = client.create_topic(name, 1)
    try:
        yield topic
    finally:
        client.delete_topic(name)


def measure(cell: str, broker: Broker, number: int, seconds: float, serial: int) -> Taken:
    """One block: values as perf.before_after.lines.of_requests has them."""
    with broker.client() as client, _topic(client, f"ba-{os.getpid()}-{serial}-{cell}") as topic:
        asked = APIS[cell](client, topic)
        creates = cell == "create-topics"
        for _ in range(0 if creates else WARM_REQUESTS):
            _checked(cell, client.ask(*next(asked)))
        watch = Watch([os.getpid(), *broker.own_pids])
        took_ns: list[int] = []
        before = cpu_ns(broker.measured_pid)
        began_ns = now_ns = time.monotonic_ns()
        while now_ns - began_ns < seconds * 1e9 and not (creates and len(took_ns) == CREATED_MAX):
            answer = client.ask(*next(asked))
            at_ns, now_ns = now_ns, time.monotonic_ns()
            took_ns.append(now_ns - at_ns)
            _checked(cell, answer)
        used_ns = cpu_ns(broker.measured_pid) - before
        quiet = watch.guard().quiet
        for name in list(_names(topic))[: len(took_ns) if creates else 0]:
            client.delete_topic(name)
    count = len(took_ns)
    return Taken(
        number,
        quiet,
        {
            "cpu_us": used_ns / 1e3 / count,
            "requests_per_s": count * 1e9 / (now_ns - began_ns),
            "p99_us": sorted(took_ns)[min(count - 1, count * 99 // 100)] / 1e3,
        },
    )


def _checked(cell: str, answer: Reader) -> None:
    if code := _error_code(cell, answer):
        raise CellError(f"{cell}: error code {code}")
