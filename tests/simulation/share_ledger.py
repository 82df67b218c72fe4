"""The rules for share groups: the answers that members get, and the states in the log.

Answers count when a broker has made them, whether they arrive or not. The states are those of the
committed records of `__share_group_state`, put together here by themselves. What is known of a
share-partition at one leader belongs to that leader's own object: another one reads the state, and
may deliver what the one before has delivered. The rules, K1 to K9 of the brief:

- A record is with one session at a time, until its lock ends, its session ends or it is
  acknowledged; and an acknowledgement is accepted from that session alone, before that (K1).
- Each record from the first start on ends acknowledged or archived: delivered as often as is
  allowed, deleted, or of an aborted transaction (K2). The start is kept before a record leaves.
- No record is delivered more often than is allowed, and its count grows, also beyond the one that
  is kept (K3). In a group that does not count the ends of short sessions it may stay, twice.
- The start that is kept does not go back, and nothing kept is beyond the committed records (K4).
- A record with a result that a leader has answered with NONE is not delivered by it again, or by a
  later one (K5).
- A window is bounded, and ends before the high watermark (K6).
- The state that a leader reads is what the log says, and no older than its question (K7).
- The count of offsets that are done is that of the state (K8). So nothing is left if and only if
  all is acknowledged or archived (K9); at the end of a history nothing is.

Nothing is checked of a share-partition whose log, or that of a coordinator, was allowed to lose
records: a group that has lost what it knew begins its states again. A leader that does not know yet
that another one leads may deliver what that one's members have acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.coordinator.share.images import (
    NO_COUNT,
    NO_EPOCH,
    NO_START,
    SharePartition,
    StateBatch,
)
from kbroker.coordinator.share.records import Snapshot, Value
from kbroker.errors import ErrorCode
from kbroker.metadata.image import SHARE_STATE_TOPIC
from kbroker.replica.share.spared import SPARED_MAX
from kbroker.replica.share.states import RELEASE_TYPE, RENEW_TYPE, State
from kbroker.types import TopicPartition
from tests.simulation.contents import Record, share_state_of
from tests.simulation.shares import DELIVERIES, GROUPS, LOCK_MS, SHORT_MS, WINDOW

if TYPE_CHECKING:
    from kbroker.coordinator.share.seams import ReadState
    from kbroker.engine.share.led import LedSharePartition
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster
    from tests.simulation.views import Partition, View

_DONE = (State.ACKNOWLEDGED, State.ARCHIVED)
# With one of these the acknowledgements have changed nothing.
_REFUSED = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)


class Kept(NamedTuple):
    """The state of a share-partition after one of its records."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start: int
    complete: int
    offsets: dict[int, tuple[int, int]]  # delivery count and state, from the start on

    def done_offsets(self) -> set[int]:
        return {at for at, (_, state) in self.offsets.items() if state in _DONE}

    def is_read(self, read: ReadState) -> bool:
        offsets = {
            at: (each.delivery_count, each.state)
            for each in read.batches
            for at in range(each.first_offset, each.last_offset + 1)
        }
        own = self.state_epoch, self.start, self.offsets
        return own == (read.state_epoch, read.start_offset, offsets)


def after(before: Kept | None, value: Value | None) -> Kept | None:
    """A record follows; None: a tombstone."""
    if value is None:
        return None
    if isinstance(value, Snapshot):
        begun = Kept(
            value.snapshot_epoch, value.state_epoch, value.leader_epoch, value.start_offset,
            value.delivery_complete_count, {},
        )  # fmt: skip
    elif before is None or before.snapshot_epoch != value.snapshot_epoch:
        return before
    else:
        begun = before._replace(
            start=before.start if value.start_offset == NO_START else value.start_offset,
            leader_epoch=max(before.leader_epoch, value.leader_epoch, NO_EPOCH),
            complete=value.delivery_complete_count,
            offsets=dict(before.offsets),
        )
    for each in value.batches:
        found = each.delivery_count, each.state
        for at in range(each.first_offset, each.last_offset + 1):
            begun.offsets[at] = max(begun.offsets.get(at, found), found)
    return begun._replace(
        offsets={at: found for at, found in begun.offsets.items() if at >= begun.start}
    )


@dataclass(eq=False)
class _Hold:
    """A session has a record."""

    member: tuple[str, str]
    number: int  # of the session
    until_ms: int
    asked: int = 0  # requests with an acknowledgement of it that are under way


@dataclass(eq=False)
class _AtLeader:
    """What is known of a share-partition at one leader."""

    holds: dict[int, _Hold] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    spared: Counter[int] = field(default_factory=Counter)  # deliveries that did not count


class Result(NamedTuple):
    """What a member says of one record."""

    offset: int
    kind: int


class _Named(NamedTuple):
    offset: int
    kind: int
    hold: _Hold | None


@dataclass(eq=False)
class Asked:
    """A request that has arrived at a broker."""

    member: tuple[str, str]  # group, member
    number: int  # of its session; 0: there is none
    at_ms: int
    results: dict[SharePartition, list[_Named]] = field(default_factory=dict)
    led: dict[SharePartition, LedSharePartition | None] = field(default_factory=dict)
    starts: dict[SharePartition, int] = field(default_factory=dict)


class ShareLedger:
    """See the head of this file."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kept: dict[SharePartition, list[Kept | None]] = {}
        self._new: list[tuple[SharePartition, Kept | None, Kept | None]] = []
        self._at_leaders: dict[LedSharePartition, _AtLeader] = {}
        self._begins: dict[SharePartition, int] = {}
        # By offset: the leader epoch in which NONE was answered; results without an answer that
        # says what became of them; the highest count of a delivery.
        self._finished: dict[SharePartition, dict[int, int]] = {}
        self._open: dict[SharePartition, Counter[int]] = {}
        self._delivered: dict[SharePartition, dict[int, int]] = {}
        # Those that a leader has written as done, and does not know whether they are kept so.
        self._unknown: dict[SharePartition, set[int]] = {}
        self.delivered = self.acknowledged = self.archived = 0

    # --- the log ----------------------------------------------------------------------------------

    def appended(self, view: View, records: Sequence[Record]) -> None:
        """By a leader; its followers may not have them yet."""
        if view.name.topic == SHARE_STATE_TOPIC and records:
            self._cluster.fault_points.happens("share state", view.node_id)

    def committed(self, partition: Partition, record: Record) -> None:
        if partition.name.topic != SHARE_STATE_TOPIC:
            return
        key, value = share_state_of(record.value)
        kept = self._kept.setdefault(key, [])
        before = kept[-1] if kept else None
        kept.append(after(before, value))
        self._new.append((key, before, kept[-1]))

    def after_look(self) -> None:
        """At all logs: one may have the records of which another has the state."""
        new, self._new = self._new, []
        for key, before, kept in new:
            if kept is not None:
                self._follows(key, before, kept)

    def _follows(self, key: SharePartition, before: Kept | None, kept: Kept) -> None:
        if kept.start >= 0:
            self._begins.setdefault(key, kept.start)
        goes = f"{before}, then {kept}"
        if before is not None and before.state_epoch > kept.state_epoch:
            self._fail("epochs of share state go forward", goes, key)
        elif before is not None and before.state_epoch < kept.state_epoch:
            if self._delivered.get(key):
                self._fail("share state does not begin again", goes, key)
        elif before is not None:
            if kept.start < before.start:
                self._fail("the start of a share-partition does not go back", goes, key)
            if kept.leader_epoch < before.leader_epoch:
                self._fail("a leader of a share-partition stays fenced", goes, key)
        end = len(self._partition(key).committed)
        if kept.start > end or max(kept.offsets, default=-1) >= end:
            self._fail("share state is of committed records", f"{kept}, of {end}", key)
        done = kept.done_offsets()
        least = len(done.difference(self._unknown.get(key, ())))
        if kept.complete != NO_COUNT and not least <= kept.complete <= len(done):
            self._fail("the count of share state is right", f"{kept}", key)

    def is_not_written(self, key: SharePartition, batches: Sequence[StateBatch]) -> None:
        """A write has failed, as its leader knows; the coordinator may have it."""
        unknown = self._unknown.setdefault(key, set())
        for each in batches:
            if each.state in _DONE:
                unknown.update(range(each.first_offset, each.last_offset + 1))

    def known(self, key: SharePartition) -> int:
        """States so far, for `has_read`."""
        self._cluster.safety.look()
        return len(self._kept.get(key, ()))

    def has_read(self, key: SharePartition, known: int, read: ReadState) -> None:
        """A broker has asked for the state when so many were known."""
        if read.code is not ErrorCode.NONE:
            return
        self._cluster.safety.look()
        possible = self._kept.get(key, [])[max(0, known - 1) :]
        if not any(each is not None and each.is_read(read) for each in possible):
            detail = f"{read}, and it was {possible[:1]} to {possible[-1:]}"
            self._fail("a leader reads what the log says", detail, key)

    # --- requests ---------------------------------------------------------------------------------

    def comes(
        self,
        running: Running,
        member: tuple[str, str],
        results: dict[SharePartition, list[Result]],
    ) -> Asked:
        """A request has arrived, and is served now."""
        sessions = running.share_service().sessions._sessions
        session = sessions.get(member)
        number = 0 if session is None else session.number
        asked = Asked(member, number, running.clock.monotonic_ms())
        for key, some in results.items():
            led = asked.led[key] = running.share_service().leaders.find(key)
            holds = {} if led is None else self._at(led).holds
            asked.starts[key] = 0 if led is None else self._start(led)
            asked.results[key] = [_Named(*each, holds.get(each.offset)) for each in some]
            for each in asked.results[key]:
                if each.hold is not None:
                    each.hold.asked += 1
                if each.kind not in (RELEASE_TYPE, RENEW_TYPE):
                    self._open.setdefault(key, Counter())[each.offset] += 1
        return asked

    def is_served(self, running: Running, asked: Asked) -> None:
        """The handler has come back; the acknowledgements were accepted then, or refused."""
        for key, led in asked.led.items():
            if led is None:
                led = asked.led[key] = running.share_service().leaders.find(key)
            if led is not None:
                asked.starts[key] = max(asked.starts[key], self._start(led))

    def _start(self, led: LedSharePartition) -> int:
        return max(led.machine.start, led.log.log_start_offset)

    def acknowledges(self, asked: Asked, key: SharePartition, code: ErrorCode) -> None:
        """The answer has this code for the results of one share-partition."""
        self._cluster.safety.look()
        led = asked.led.get(key)
        for each in asked.results.get(key, ()):
            if each.hold is not None:
                each.hold.asked -= 1
            if code in _REFUSED and each.kind not in (RELEASE_TYPE, RENEW_TYPE):
                self._open[key][each.offset] -= 1
            if code is ErrorCode.NONE and led is not None and each.offset >= asked.starts[key]:
                self._accepted(asked, key, led, each)

    def _accepted(
        self, asked: Asked, key: SharePartition, led: LedSharePartition, each: _Named
    ) -> None:
        hold, said = each.hold, f"{asked.member} says {each.kind} of {each.offset} to {led.log}"
        if hold is None or hold.number != asked.number or hold.until_ms <= asked.at_ms:
            rule = "only the member that has a record acknowledges it"
            self._fail(rule, f"{said}, at {asked.at_ms}, which {hold} has", key)
            return
        if each.kind == RENEW_TYPE:
            hold.until_ms = asked.at_ms + LOCK_MS
            return
        holds = self._at(led).holds
        now = holds.get(each.offset)
        if now is hold:
            del holds[each.offset]
        elif now is not None and each.kind != RELEASE_TYPE:
            self._fail("a record is not delivered while its result is written", said, key)
        if each.kind != RELEASE_TYPE:
            self.acknowledged += 1
            finished = self._finished.setdefault(key, {})
            finished[each.offset] = max(led.leader_epoch, finished.get(each.offset, -1))

    def delivers(self, running: Running, asked: Asked, key: SharePartition, records: Any) -> None:
        """The answer has these records, by a leader of the share-partition."""
        self._cluster.safety.look()
        led = running.share_service().leaders.find(key)
        session = running.share_service().sessions._sessions.get(asked.member)
        if led is None or session is None:
            self._fail("records are delivered by a leader to a session", f"{records}", key)
            return
        machine, now_ms = led.machine, running.clock.monotonic_ms()
        if machine.in_flight > WINDOW or machine.end >= led.log.high_watermark:
            window = f"{machine.start} to {machine.end}, of {led.log.high_watermark}"
            self._fail("a window is bounded", window, key)
        at, count = self._at(led), records.delivery_count
        for offset in range(records.first_offset, records.last_offset + 1):
            self._may_be_delivered(running, key, led, offset, count)
            self.delivered += 1
            at.counts[offset] = count
            at.holds[offset] = _Hold(asked.member, session.number, now_ms + LOCK_MS)
            delivered = self._delivered.setdefault(key, {})
            delivered[offset] = max(count, delivered.get(offset, 0))

    def _may_be_delivered(
        self, running: Running, key: SharePartition, led: LedSharePartition, offset: int, count: int
    ) -> None:
        at, epoch = self._at(led), led.leader_epoch
        said = f"{offset}, for the {count}. time in epoch {epoch} by {running.node_id}"
        hold = at.holds.get(offset)
        if hold is not None and not hold.asked and self._lasts(running, hold):
            self._fail("a record is with one member at a time", f"{said}; {hold} has it", key)
        before = at.counts.get(offset, 0)
        if count == before and SHORT_MS[key.group_id]:
            at.spared[offset] += 1
        is_spared = count == before and 0 < at.spared[offset] <= SPARED_MAX
        if not (before < count or is_spared) or count > DELIVERIES:
            self._fail("delivery counts grow to the limit", f"{said}, after {at.counts}", key)
        kept = (self._kept.get(key) or [None])[-1]
        if kept is None or kept.start == NO_START:
            self._fail("a start is kept before its records are delivered", said, key)
        elif epoch >= kept.leader_epoch:
            counted, state = kept.offsets.get(offset, (0, State.AVAILABLE))
            is_known = offset not in self._unknown.get(key, ())
            if offset < kept.start or (state in _DONE and is_known):
                self._fail("what is kept as done is not delivered", f"{said}: {kept}", key)
            if count <= counted:
                self._fail("delivery counts grow beyond the ones kept", f"{said}: {kept}", key)
        if epoch >= self._finished.get(key, {}).get(offset, epoch + 1):
            self._fail("what is acknowledged is not delivered again", said, key)

    def _lasts(self, running: Running, hold: _Hold) -> bool:
        session = running.share_service().sessions._sessions.get(hold.member)
        lives = session is not None and session.number == hold.number
        return lives and running.clock.monotonic_ms() < hold.until_ms

    def _at(self, led: LedSharePartition) -> _AtLeader:
        return self._at_leaders.setdefault(led, _AtLeader())

    # --- the end ----------------------------------------------------------------------------------

    def lags(self) -> str:
        """The first share-partition that has something left; empty: none."""
        for key in self._all_keys():
            kept = (self._kept.get(key) or [None])[-1]
            if self._is_excused(key) or self._lacks_markers(key):
                continue
            if kept is None or kept.start == NO_START:
                return f"{key} has no start"
            end = len(self._partition(key).committed)
            done = len(kept.done_offsets())
            if kept.start + done != end or kept.complete != done:
                return f"{key} is done to {kept.start}, and {done} of {end}: {kept.complete}"
        return ""

    def _all_keys(self) -> list[SharePartition]:
        topic = self._cluster.all_running()[0].controller.image.topic(self._cluster.names[0].topic)
        assert topic is not None
        return [
            SharePartition(group, topic.topic_id, name.partition)
            for group in GROUPS
            for name in self._cluster.names
        ]

    def look_at_all(self) -> None:
        """Nothing is left."""
        for key, begins in self._begins.items():
            if self._lacks_markers(key):
                continue
            partition = self._partition(key)
            deleted_to = max(view.log_start for view in partition.views.values())
            for offset in range(max(begins, deleted_to), len(partition.committed)):
                if not self._has_ended(key, offset, partition.committed[offset]):
                    count = self._delivered.get(key, {}).get(offset, 0)
                    said = f"{partition.committed[offset]} at {offset}, delivered {count} times"
                    self._fail("each record is acknowledged or archived", said, key)

    def _has_ended(self, key: SharePartition, offset: int, record: Record) -> bool:
        """In a way that a record may."""
        if offset in self._finished.get(key, {}) or self._open.get(key, Counter())[offset] > 0:
            return True
        if self._delivered.get(key, {}).get(offset, 0) >= DELIVERIES:
            self.archived += 1
            return True
        # Its transaction was aborted, perhaps by a marker that was lost.
        return record.is_transactional and GROUPS[key.group_id][1]

    # --- violations -------------------------------------------------------------------------------

    def _partition(self, key: SharePartition) -> Partition:
        return self._cluster.safety.partition(self._cluster.names[key.partition])

    def _is_excused(self, key: SharePartition) -> bool:
        logs: list[TopicPartition] = [*self._cluster.share_states, *self._cluster.homes]
        return self._partition(key).lost or any(self._is_lost(name) for name in logs)

    def _lacks_markers(self, key: SharePartition) -> bool:
        """A log of transactions was allowed to lose records, so one may be open for ever, and the
        group, which reads committed records, waits for its end."""
        return GROUPS[key.group_id][1] and self._cluster.ledger.is_excused()

    def may_lack_states(self) -> bool:
        """A log of states was allowed to lose records. Then a leader may find no state: a member is
        answered UNKNOWN_SERVER_ERROR, as by Apache Kafka."""
        self._cluster.safety.look()
        return any(self._is_lost(name) for name in self._cluster.share_states)

    def _is_lost(self, name: TopicPartition) -> bool:
        return self._cluster.safety.partition(name).lost

    def _fail(self, rule: str, detail: str, key: SharePartition) -> None:
        if not self._is_excused(key):
            self._cluster.safety.fail(rule, f"{key.group_id} of {key.partition}: {detail}")
