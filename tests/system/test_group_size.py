"""One group of a thousand members, ten thousand groups: all are served, and neighbours too."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from kbroker.errors import ErrorCode
from tests.support.group_members import (
    Member,
    form,
    rebalance,
    run,
    run_one,
    settle,
    wait_for_coordinator,
)
from tests.system import process_facts
from tests.system.conftest import MakeBroker

pytestmark = pytest.mark.client

MEMBERS = 1_000
GROUPS = 10_000
# A thousand connect at once: the default of 50 would have most of them try again.
OVERRIDES = {"socket.listen.backlog.size": 4096}


def address_of(bootstrap: str) -> tuple[str, int]:
    host, port = bootstrap.rsplit(":", 1)
    return host, int(port)


class Neighbour(threading.Thread):
    """A group of one, which sends heartbeats as fast as it is answered."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self._member = Member(address, "neighbour", 30_000, 60_000)
        self._member.join()
        run_one(self._member)
        self.ended = threading.Event()
        self.beats = 0
        self.codes: set[ErrorCode] = set()

    def run(self) -> None:
        while not self.ended.is_set():
            self._member.heartbeat()
            run_one(self._member)
            self.beats += 1
            self.codes.add(self._member.last_code)
        self._member.close()


def test_a_thousand_members(make_broker: MakeBroker) -> None:
    broker = make_broker(overrides=OVERRIDES).start()
    address = address_of(broker.bootstrap)
    wait_for_coordinator(address, "large")
    neighbour = Neighbour(address)
    neighbour.start()
    with ExitStack() as stack:
        stack.callback(neighbour.ended.set)
        members, _ = form(address, "large", MEMBERS)
        for member in members:
            stack.callback(member.close)
        given = sorted(int(member.assignment or b"-1") for member in members)
        assert given == list(range(MEMBERS))
        for _ in range(3):
            rebalance(members)
        # The one that leads goes: the others learn of it by their heartbeats, and go on without.
        gone = next(member for member in members if member.leads)
        members.remove(gone)
        gone.leave()
        run([gone], lambda: gone.waits is None, "leaving")
        for member in members:
            member.heartbeat()
        run(members, lambda: all(m.waits is None for m in members), "heartbeats")
        assert {member.last_code for member in members} == {ErrorCode.REBALANCE_IN_PROGRESS}
        settle(members, members[0].generation)
        for member in members:
            member.leave()
        run(members, lambda: all(m.waits is None for m in members), "leaving")
        assert {member.last_code for member in members} == {ErrorCode.NONE}
    neighbour.join(30)
    assert neighbour.codes == {ErrorCode.NONE}
    assert neighbour.beats > 10
    assert broker.stop() == 0


@pytest.mark.slow
def test_ten_thousand_groups(make_broker: MakeBroker) -> None:
    broker = make_broker(overrides=OVERRIDES).start()
    address = address_of(broker.bootstrap)
    wait_for_coordinator(address, "g-0")
    before = process_facts.resident_bytes(broker.pid)
    one = Member(address, "", 60_000, 60_000)
    for number in range(GROUPS):
        one.group, one.member_id = f"g-{number}", ""
        one.join()
        run_one(one)
    each = (process_facts.resident_bytes(broker.pid) - before) / GROUPS
    assert each < 16_384, each
    # The last one is as alive as it was when it was alone.
    one.heartbeat()
    run_one(one)
    assert one.last_code is ErrorCode.NONE
    one.close()
    assert broker.stop() == 0
