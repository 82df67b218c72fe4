"""The thread sanitizer in every test run: groups, from every side at once.

    python -m tests.sanitizers.groups [SECONDS]

A build of everything takes minutes (`make test-tsan`, which plays these roles among its own); this
one compiles groups, and what hands their requests over and writes their records, and takes the
other modules as they are. A broker of it has groups that form, rebalance and are left, in order and
by sessions that end, members that commit and send heartbeats in one go, topics that go with offsets
committed for them, and others that look at all of it and delete. Only a report counts.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from perf import members
from perf.client import Client
from tests.fuzz.target import Admin
from tests.sanitizers import races, tree
from tests.sanitizers.races import (
    PARTITIONS,
    TOPIC,
    Address,
    Role,
    SanitizedBroker,
    Talk,
    play,
    scrapes,
)
from tests.support import schemas
from tests.support.group_members import Member, rebalance, run, settle, wait_for_coordinator

SECONDS: Final = 6.0
CROWD: Final = 6
SESSION_MS: Final = 1_500
REBALANCE_MS: Final = 1_000
SETTINGS: Final[Mapping[str, object]] = {
    "auto.create.topics.enable": False,
    "group.min.session.timeout.ms": SESSION_MS,
    "log.segment.bytes": 1 << 20,
}
UNITS: Final = (
    *("kbroker/coordinator/group/*.pyx", "kbroker/replica/_partition.pyx"),
    *(
        "kbroker/replica/_snapshot.pyx",
        "kbroker/log/engine/_append.pyx",
        "kbroker/log/engine/_storage.pyx",
    ),
    *("kbroker/engine/_hot.pyx", "kbroker/engine/worker/_answers.pyx"),
    *("kbroker/engine/apis/_heartbeat.pyx", "kbroker/engine/apis/_offset_commit.pyx"),
    *("kbroker/net/_request_channel.pyx", "kbroker/net/_processor.pyx"),
    *("kbroker/net/_channel.pyx", "kbroker/net/_request.pyx", "kbroker/net/_frames.pyx"),
)


def main(seconds: float = SECONDS) -> int:
    began = time.monotonic()
    copy = tree.sanitized_copy("thread", UNITS)
    print(f"built in {time.monotonic() - began:.0f} s", flush=True)

    def load(broker: SanitizedBroker) -> list[str]:
        admin = Admin(broker.address)
        admin.create(TOPIC, PARTITIONS, {})
        admin.close()
        around = {"scrapes": scrapes(str(broker.ready["admin"]))}
        return play(around | roles(broker.address), seconds)

    status = races.run(copy, SETTINGS, "thread, groups", load)
    print(f"took {time.monotonic() - began:.0f} s")
    return status


def roles(address: Address) -> dict[str, Role]:
    """All who have to do with groups; `TOPIC` is there."""
    wait_for_coordinator(address, "raced-0")
    return {
        **{f"member {i}": _committing(address, f"raced-{i}") for i in range(3)},
        **{f"crowd {i}": _crowd(address, f"crowd-{i}") for i in range(2)},
        "topics": _topics(address),
        "looks": _looks(address),
    }


def _committing(address: Address, group: str) -> Role:
    """Alone in its group: commits and heartbeats in one send, and now and then leaves and joins."""

    def begin() -> Callable[[], object]:
        client, talk = Client(*address), Talk(address)
        topic = client.topic(TOPIC)

        def step() -> None:
            member = members.join(client, group)
            frames = members.heartbeat(member).frame + members.commit(member, topic, 0).frame
            for _ in range(100):
                talk.send(frames)
                talk.receive()
                talk.receive()
            members.leave(client, member)

        return step

    return begin


def _crowd(address: Address, name: str) -> Role:
    """A group that comes at once and rebalances; half of it leaves, the others just go."""

    def begin() -> Callable[[], object]:
        numbers = itertools.count()

        def step() -> None:
            group = f"{name}-{next(numbers)}"
            crowd = [Member(address, group, SESSION_MS, REBALANCE_MS) for _ in range(CROWD)]
            for member in crowd:
                member.join()
            settle(crowd, 0)
            rebalance(crowd)
            leaving = crowd[::2]
            for member in leaving:
                member.leave()
            run(leaving, lambda: all(m.waits is None for m in leaving), f"{group} is left")
            for member in crowd:
                member.close()

        return step

    return begin


def _topics(address: Address) -> Role:
    """A topic goes while there are offsets for it."""

    def begin() -> Callable[[], object]:
        admin, client, talk = Admin(address), Client(*address), Talk(address)

        def step() -> None:
            admin.create("goes", 1, {})
            member = members.join(client, "goes")
            talk.send(members.commit(member, client.topic("goes"), 0).frame)
            talk.receive()
            admin.delete(["goes"])
            members.leave(client, member)

        return step

    return begin


def _looks(address: Address) -> Role:
    """All groups by name and state, their offsets; those that may be deleted are."""

    def begin() -> Callable[[], object]:
        admin = Admin(address)

        def step() -> None:
            listed = admin.ask(ApiKey.LIST_GROUPS, 4, states_filter=()).groups
            names = tuple(each.group_id for each in listed)
            admin.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=names, include_authorized_operations=False)
            asked = schemas.request_module(ApiKey.OFFSET_FETCH, 8).OffsetFetchRequestGroup
            groups = tuple(asked(group_id=name, topics=None) for name in names)
            admin.ask(ApiKey.OFFSET_FETCH, 8, groups=groups, require_stable=False)
            for result in admin.ask(ApiKey.DELETE_GROUPS, 2, groups_names=names).results:
                allowed = (ErrorCode.NONE, ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND)
                if int(result.error_code) not in allowed:
                    raise RuntimeError(f"deleting {result}")

        return step

    return begin


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:2])))
