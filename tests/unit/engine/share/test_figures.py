"""What is counted of the records of share groups, and the lines of those that are given up."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.engine.share import figures as module
from kbroker.observe import share_figures
from kbroker.replica.share import sessions as sessions_module
from kbroker.replica.share.acknowledging import Acknowledgement
from kbroker.replica.share.acquiring import Wanted
from kbroker.replica.share.sessions import Change, Place, ShareSessions
from kbroker.replica.share.states import Event
from tests.unit.engine.share.world import KEY, TOPIC, World

OWNER = 1
RELEASE, REJECT = 2, 3


def deliver(world: World, *kinds: int) -> None:
    """One record after the other is acquired, and acknowledged so."""
    led = world.ready()
    world.log.append(len(kinds))
    for kind in kinds:
        fetched = led.fetch(OWNER, Wanted(1, 1, True), 1 << 20)
        assert fetched is not None
        ((first, last, _),) = fetched.acquired
        led.acknowledge(OWNER, [Acknowledgement(first, last, [kind])], lambda code: None)
        world.persister.answer_write()


def test_records_are_counted_by_event(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.settings = world.settings._replace(deliveries=2)
    with caplog.at_level(logging.WARNING, "kbroker.share"):
        deliver(world, RELEASE, RELEASE, REJECT)
    records, archived = world.figures.records(), world.figures.archived()
    assert (records[Event.ACQUIRE], records[Event.RELEASE], records[Event.REJECT]) == (3, 2, 1)
    assert archived == {Event.RELEASE: 1, Event.REJECT: 1}
    (line,) = (each.getMessage() for each in caplog.records)
    assert line.startswith(
        "share group g has given up 1 records of orders-0, from 0 on, delivered as often as it"
        " allows: its members released them -> "
    )
    assert world.figures.loads.summary((0.5,)).total == 1


def test_records_that_are_not_counted_have_a_line_and_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.settings = world.settings._replace(short_ms=10)
    led = world.ready()
    world.log.append(3)
    assert led.fetch(OWNER, Wanted(9, 9), 1 << 20) is not None
    with caplog.at_level(logging.INFO, "kbroker.share"):
        led.end_session(OWNER)
    assert world.figures.records()[Event.SHORT_SESSION_ENDS] == 3
    (line,) = (each.getMessage() for each in caplog.records)
    assert line == (
        "share group g: the sessions of members ended soon after they had acquired 3 records of"
        " orders-0; that does not count as a delivery (kb.share.session.end.count)"
    )


def test_the_metrics_have_the_counts() -> None:
    world = World()
    deliver(world, RELEASE, REJECT)
    led = world.leaders.find(KEY)
    assert led is not None
    assert led.fetch(OWNER, Wanted(9, 9), 1 << 20) is not None
    led.end_session(OWNER)
    sessions = ShareSessions(lambda: 10)
    assert sessions.meet("c") and sessions.meet("d")
    sessions.open("g", "m", "c", Change({Place(TOPIC, 0): True}))
    sessions.open("g", "m", "d")
    sessions.close_connection("d")
    service: Any = SimpleNamespace(
        leaders=world.leaders, sessions=sessions, figures=world.figures, waiting=world.waiting
    )
    share: Any = SimpleNamespace(made=None, waiting=0, service=SimpleNamespace(made=service))
    found = {key: dict(rows) for key, rows in share_figures.led(share).items()}
    assert found["share_partitions_led"] == {(): 1}
    assert found["share_in_flight"] == {("g", "orders", "0"): led.machine.in_flight}
    assert found["share_in_flight_sum"] == {(): led.machine.in_flight}
    assert found["share_acquired"] == {(): 3}
    assert found["share_session_end_records"] == {(): 1}
    assert found["share_session_end_spared"] == {(): 0}
    assert found["share_archived"][("rejected",)] == 1
    assert found["share_sessions"] == {(): 0}
    assert found["share_sessions_ended"] == {
        ("closed",): 0, ("disconnected",): 1, ("replaced",): 1,
        ("evicted",): 0,
    }  # fmt: skip
    counted = {key: dict(rows) for key, rows in share_figures.counted(share).items()}
    assert counted["share_acknowledgements"][("Release",)] == 1


def test_without_a_member_there_are_zeros_by_the_same_labels() -> None:
    nothing: Any = SimpleNamespace(made=None, waiting=0, service=SimpleNamespace(made=None))
    for share in (None, nothing):
        found: dict[str, Any] = {**share_figures.led(share), **share_figures.counted(share)}
        values = [value for rows in found.values() for _, value in rows if isinstance(value, int)]
        assert set(values) == {0}
    assert tuple(module.REASONS.values()) == share_figures.REASONS
    assert tuple(module.TYPES.values()) == share_figures.TYPES
    assert sessions_module.ENDS == share_figures.CAUSES
