"""A run of outcomes of which one meets a disk that hangs: Python goes on with the others.

The two are one run: they are queued before there is a handler for them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.txn.image import Pair
from kbroker.coordinator.txn.states import State
from kbroker.errors import ErrorCode
from kbroker.metadata.image import TRANSACTIONS_TOPIC
from tests.support.standing_disk import standing
from tests.unit.engine.coordinated import END, STATE_PARTITIONS, Coordinated, error_of_end
from tests.unit.net.harness import (
    COLD_KEY,
    DEADLINE_S,
    Client,
    Rig,
    cold_frame,
    eventually,
    framed,
    header,
)

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
SLOW, OTHER = "slow", "other"  # of different partitions of the state topic
PARTITIONS = {SLOW: {"bills": [0]}, OTHER: {"orders": [0]}}
FIRST_FILE = f"{0:020}.log"
# Where it hangs, and which of the two comes first in the run.
WHERE = {
    "its outcome, before the other's": ("state", [SLOW, OTHER]),
    "its outcome, after the other's": ("state", [OTHER, SLOW]),
    "its marker, before the other's": ("marker", [SLOW, OTHER]),
    "its marker, after the other's": ("marker", [OTHER, SLOW]),
}


class Queued:
    """Both have an open transaction, and their EndTxn waits for a handler."""

    def __init__(self, rig: Rig, version: int, order: list[str]) -> None:
        self.version = version
        self.world = Coordinated(rig)
        self.pairs: dict[str, Pair] = {}
        for name in PARTITIONS:
            pair = self.pairs[name] = self.world.init(name)
            self.world.add(3, pair, PARTITIONS[name], name=name)
            (found,) = self.world.produce(11, pair, PARTITIONS[name], name=name)
            assert found.error == 0
        self._blocked, self._go_on = threading.Event(), threading.Event()
        self._dispatch = rig.dispatch
        rig.dispatch = self._blocks
        self._held = rig.client()
        self._held.send(cold_frame())
        assert self._blocked.wait(DEADLINE_S)
        self.clients: dict[str, Client] = {}
        for number, name in enumerate(order, start=1):
            client = self.clients[name] = rig.client()
            body = self.world.end_body(version, self.pairs[name], name=name)
            client.send(framed(header(END, version, 7) + body))
            eventually(lambda number=number: rig.server.statistics()["queued_requests"] == number)

    def _blocks(self, request: Any) -> None:
        if request.api_key == COLD_KEY:
            self._blocked.set()
            assert self._go_on.wait(DEADLINE_S)
            request.respond(b"")
        else:
            self._dispatch(request)

    def let_go(self) -> None:
        self._go_on.set()
        self._held.receive()

    def end_in_python(self, name: str) -> ErrorCode:
        codes: list[ErrorCode] = []
        self.world.coordinator.end(
            name, self.pairs[name], 2 if self.version == 5 else 0,
            lambda code, pair: codes.append(code), committed=True,
        )  # fmt: skip
        (code,) = codes
        return code

    def state(self, name: str) -> State | None:
        image = self.world.coordinator.find(name)
        return None if image is None else image.state

    def answer(self, name: str) -> ErrorCode:
        return error_of_end(self.world.answer(END, self.version, self.clients[name]))


@pytest.fixture
def rig(make_rig: Any) -> Iterator[Rig]:
    assert partition_for(SLOW, STATE_PARTITIONS) != partition_for(OTHER, STATE_PARTITIONS)
    rig: Rig = make_rig(handlers=1)
    yield rig


def place(kind: str) -> str:
    if kind == "marker":
        return f"bills-0/{FIRST_FILE}"
    return f"{TRANSACTIONS_TOPIC}-{partition_for(SLOW, STATE_PARTITIONS)}/{FIRST_FILE}"


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("where", WHERE)
def test_another_outcome_of_the_run_is_over_meanwhile(rig: Rig, where: str, version: int) -> None:
    kind, order = WHERE[where]
    queued = Queued(rig, version, order)
    with standing(("write", place(kind))) as disk:
        rig.pool.resize(2)
        disk.wait()
        assert queued.end_in_python(SLOW) is CONCURRENT
        eventually(lambda: queued.end_in_python(OTHER) is not CONCURRENT)
        assert queued.state(OTHER) is State.COMPLETE_COMMIT
        assert queued.end_in_python(SLOW) is CONCURRENT
        disk.go_on()
        assert queued.answer(SLOW) is ErrorCode.NONE
        # It may be older than the producer's next transaction, so it does nothing.
        assert queued.answer(OTHER) is CONCURRENT
    queued.let_go()
    assert queued.world.in_python == []
    for name in PARTITIONS:
        assert queued.state(name) is State.COMPLETE_COMMIT
        assert not queued.world.is_pending(name)
        states = [image.state for each, image in queued.world.states() if each == name and image]
        assert states[-2:] == [State.PREPARE_COMMIT, State.COMPLETE_COMMIT]
        assert len(states) == 4
    for topic in ("bills", "orders"):
        assert [control for *_, control, _ in queued.world.contents(topic, 0)] == [False, True]


def test_the_look_for_timeouts_goes_on_with_it_too(rig: Rig) -> None:
    """Its client may be gone."""
    queued = Queued(rig, 4, [OTHER, SLOW])
    with standing(("write", place("marker"))) as disk:
        rig.pool.resize(2)
        disk.wait()

        def is_over() -> bool:
            for _ in queued.world.coordinator.abort_timed_out():
                pass
            return queued.state(OTHER) is State.COMPLETE_COMMIT

        eventually(is_over)
        disk.go_on()
        assert queued.answer(SLOW) is ErrorCode.NONE
        assert queued.answer(OTHER) is CONCURRENT
    queued.let_go()
