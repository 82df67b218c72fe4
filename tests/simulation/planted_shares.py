"""Faults that histories with share groups must find; a plant is described in `plant.py`."""

from __future__ import annotations

from typing import Any

from kbroker.coordinator.share import decisions
from kbroker.coordinator.share.images import NO_START
from kbroker.coordinator.share.seams import ReadState
from kbroker.coordinator.share.store import ShareStateStore
from kbroker.engine.share.led import LedSharePartition
from kbroker.errors import ErrorCode
from kbroker.replica.share import acknowledging
from kbroker.replica.share.partition import Settings, SharePartition
from kbroker.replica.share.states import Do, State
from kbroker.replica.share.writes import Write
from tests.simulation.plant import Plant

_acknowledge = LedSharePartition.acknowledge
_first_writes = LedSharePartition._first_writes
_settings = LedSharePartition.settings
_take_write = SharePartition.take_write
_append = ShareStateStore.append
_prune = ShareStateStore.prune
_value = decisions._value


def _of_any_session(partition: SharePartition, owner: int, piece: Any) -> bool:
    """A session may acknowledge what another one has."""
    return all(
        partition.cell(place, piece.event).do is not Do.REFUSE
        for place in partition.ranges.overlapping(piece.first, piece.last)
    )


def _answered_at_once(led: LedSharePartition, owner: int, batches: Any, token: Any) -> Any:
    """A member is answered before the share coordinator has what it says."""
    code = _acknowledge(led, owner, batches, lambda code: None)
    return ErrorCode.NONE if code is None else code


def _start_not_kept(led: LedSharePartition, kept: ReadState) -> tuple[Write, ...]:
    """The start that the group's reset gives is not written before records leave."""
    writes = _first_writes(led, kept)
    return () if kept.start_offset == NO_START else writes


def _counts_forgotten(led: LedSharePartition, kept: ReadState) -> tuple[Write, ...]:
    """A leader counts deliveries from its own beginning."""
    batches = tuple(
        each._replace(delivery_count=0) if each.state == State.AVAILABLE else each
        for each in kept.batches
    )
    return _first_writes(led, kept._replace(batches=batches))


def _not_fenced(leader_epoch: int, state: Any) -> None:
    """The coordinator takes writes of a leader that was replaced."""


def _without_bounds(led: LedSharePartition) -> Settings:
    """A share-partition hands out as much as there is."""
    return _settings(led)._replace(window=10_000)


def _as_before(partition: SharePartition) -> Write | None:
    """A write counts what was done before it."""
    write = _take_write(partition)
    return write if write is None else write._replace(complete=partition.terminal)


def _never(partition: SharePartition, now_ms: int, settings: Settings) -> bool:
    """A lock does not run out."""
    return False


def _before_followers(
    store: ShareStateStore, partition: int, term: int, records: Any, in_log: Any, done: Any,
    timeout_ms: int,
) -> None:  # fmt: skip
    """State is kept before the followers have it."""
    _append(store, partition, term, records, in_log, lambda code: None, timeout_ms)
    done(ErrorCode.NONE)


def _all_of_it(store: ShareStateStore, partition: int, offset: int, replicated_to: int) -> bool:
    """States that are needed are pruned, too."""
    return _prune(store, partition, replicated_to, replicated_to)


def _without_batches(asked: Any, state: Any, now_ms: int, updates_max: int) -> Any:
    """A snapshot has only what came with its write."""
    value = _value(asked, state, now_ms, updates_max)
    is_update = state.updates < updates_max
    return value if is_update else value._replace(batches=tuple(asked.batches))


PLANTED_IN_SHARES: dict[str, Plant] = {
    "acknowledged-by-any": Plant(acknowledging, "_are_owned", _of_any_session, 60, first=18),
    "acknowledged-at-once": Plant(
        LedSharePartition, "acknowledge", _answered_at_once, 60, first=26
    ),
    "start-not-kept": Plant(LedSharePartition, "_first_writes", _start_not_kept, 40),
    "counts-forgotten": Plant(LedSharePartition, "_first_writes", _counts_forgotten, 60, first=14),
    "leaders-not-fenced": Plant(decisions, "_check_leader", _not_fenced, 60, first=29),
    "window-without-bounds": Plant(LedSharePartition, "settings", _without_bounds, 60, first=6),
    "done-as-before": Plant(SharePartition, "take_write", _as_before, 40),
    "locks-without-end": Plant(SharePartition, "end_locks", _never, 60, first=14),
    "state-before-followers": Plant(ShareStateStore, "append", _before_followers, 60),
    "pruned-too-far": Plant(ShareStateStore, "prune", _all_of_it, 60, first=4),
    "snapshot-without-batches": Plant(decisions, "_value", _without_batches, 60, first=1),
}
