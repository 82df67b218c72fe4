"""Samples of share groups: of this broker as a coordinator of their state, of its questions to
coordinators, and of the share-partitions that it leads.

Series by share-partition end at SHARE_SERIES_MAX, with those of the groups that come first by name;
the sums have them all. A broker that no share group uses imports nothing of it, and has zeros. Any
thread; no lock is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kbroker.coordinator.runtime.loader import LoadTimes
from kbroker.metrics.catalogue import QUANTILES
from kbroker.metrics.durations import Durations
from kbroker.observe.traffic_figures import Samples, Totals
from kbroker.outside_text import label

if TYPE_CHECKING:
    from kbroker.cluster.share_state import ShareStates
    from kbroker.engine.share.service import ShareService
    from kbroker.metrics.model import Sample

SHARE_SERIES_MAX: Final = 20_000
# Labels of the counts, as `engine/share/figures.py` has them: they are there from the start.
REASONS: Final = (
    "lock ended", "session ended", "released", "rejected", "gap", "not readable", "expired",
    "limit lowered", "deleted",
)  # fmt: skip
TYPES: Final = ("Accept", "Release", "Reject", "Renew", "Gap")
OUTCOMES: Final = ("copied", "copied in part", "not written", "deleted before")
CAUSES: Final = ("closed", "disconnected", "replaced", "evicted")


class OnDemand(Protocol):
    """`ShareServiceOnDemand`."""

    @property
    def made(self) -> ShareService | None: ...


class OfShareGroups(Protocol):
    """`ShareGroupsOnDemand`."""

    @property
    def made(self) -> ShareStates | None: ...

    @property
    def waiting(self) -> int:
        """Questions that are not answered."""
        ...

    @property
    def service(self) -> OnDemand: ...


def samples(share: OfShareGroups | None) -> Samples:
    """None: there are no share groups."""
    made = None if share is None else share.made
    times, states = LoadTimes(), 0
    records = refused = unwritten = 0
    if made is not None:
        times, states = made.loader.times, made.coordinator.state_count()
        records, refused, unwritten = made.coordinator.counts
    return {
        "share_states": [((), states)],
        "share_state_records": [((), records)],
        "share_state_refused": [((), refused)],
        "share_state_unwritten": [((), unwritten)],
        "share_state_load_max": [((), times.longest_ms)],
        "share_state_load_avg": [((), times.average_ms)],
        "share_state_waiting": [((), 0 if share is None else share.waiting)],
    }


def _service(share: OfShareGroups | None) -> ShareService | None:
    return None if share is None else share.service.made


def led(share: OfShareGroups | None) -> Samples:
    """Of the share-partitions that this broker leads, and the sessions of their members."""
    service = _service(share)
    if service is None:
        return {
            "share_partitions_led": [((), 0)],
            "share_in_flight_sum": [((), 0)],
            "share_in_flight": [],
            "share_delayed": [((), 0)],
            "share_full_of_delayed": [((), 0)],
            "share_in_flight_ranges": [],
            "share_sessions": [((), 0)],
            "share_session_partitions": [((), 0)],
            "share_sessions_ended": [((cause,), 0) for cause in CAUSES],
            "share_archived": [((words,), 0) for words in REASONS],
            "share_dead_letters": [((words,), 0) for words in OUTCOMES],
            "share_archiving": [((), 0)],
            "share_acquired": [((), 0)],
            "share_session_end_records": [((), 0)],
            "share_session_end_spared": [((), 0)],
            "share_load_time": [((), Durations().summary(QUANTILES))],
        }
    from kbroker.engine.share import figures as counts
    from kbroker.replica.share.states import Event

    every = sorted(service.leaders.every(), key=lambda each: (each.key.group_id, each.log.name))
    in_flight: list[Sample] = []
    ranges: list[Sample] = []
    total = archiving = 0
    for each in every:
        machine, name = each.machine, each.log.name
        count = max(0, machine.in_flight)
        total += count
        archiving += machine.archiving
        if len(in_flight) < SHARE_SERIES_MAX:
            labels = (label(each.key.group_id), name.topic, str(name.partition))
            in_flight.append((labels, count))
            ranges.append((labels, len(machine.ranges)))
    figures, sessions = service.figures, service.sessions
    archived, records = figures.archived(), figures.records()
    dead = figures.dead_letters()
    return {
        "share_partitions_led": [((), len(every))],
        "share_in_flight_sum": [((), total)],
        "share_in_flight": in_flight,
        "share_delayed": [((), sum(each.machine.delayed for each in every))],
        "share_full_of_delayed": [((), sum(each.machine.is_full_of_delayed for each in every))],
        "share_in_flight_ranges": ranges,
        "share_sessions": [((), len(sessions))],
        "share_session_partitions": [((), sessions.places)],
        "share_sessions_ended": [((cause,), count) for cause, count in sessions.ended().items()],
        "share_archived": [((words,), archived[event]) for event, words in counts.REASONS.items()],
        "share_dead_letters": [((words,), dead[words]) for words in OUTCOMES],
        "share_archiving": [((), archiving)],
        "share_acquired": [((), records[Event.ACQUIRE])],
        "share_session_end_records": [((), records[Event.SESSION_ENDS])],
        "share_session_end_spared": [((), records[Event.SHORT_SESSION_ENDS])],
        "share_load_time": [((), figures.loads.summary(QUANTILES))],
    }


def counted(share: OfShareGroups | None) -> Totals:
    """Those with rates."""
    service = _service(share)
    if service is None:
        return {
            "share_lock_timeouts": [((), 0)],
            "share_acknowledgements": [((name,), 0) for name in TYPES],
        }
    from kbroker.engine.share import figures
    from kbroker.replica.share.states import Event

    records = service.figures.records()
    return {
        "share_lock_timeouts": [((), records[Event.LOCK_ENDS])],
        "share_acknowledgements": [
            ((name,), records[event]) for event, name in figures.TYPES.items()
        ],
    }
