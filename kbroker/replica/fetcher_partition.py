"""One partition that this broker follows, in one leader epoch: what is asked, what answers do.

Place in the flow: `ReplicaFetcher` puts what `asked` says into a request and gives what came back
to `apply`; the log does what is decided here. `_taking.pyx` does the same, step by step, where an
answer has nothing but records: a change here is one there. When the controller names another
leader or epoch, a new object takes this one's place, and this one is `end`ed: whatever comes back
for it is dropped.

The lock orders both. The fetcher holds it while it looks at an answer and changes the log; after
that, nothing that an old leader said can reach the log any more. So a replica is made a leader when
`is_over`: a cut is no single step under the log's own lock, and must not meet an append as leader.
Who ends the partition, on the controller's thread, waits a moment for that, not for a disk that
hangs. The object that takes this one's place has the same lock, and leaves the log alone till then.

An answer counts only for the position it was asked for. One that comes twice, or late, finds that
the log has gone on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log_lines import LogLines
from kbroker.peer.replica_fetch import Asked
from kbroker.protocol.record_batch import BATCH_HEADER, HEADER_BYTES
from kbroker.replica._taking import FollowedState
from kbroker.replica.fetcher_session import key_of
from kbroker.replica.truncation import Divergence, cut_offset

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.peer.replica_fetch import Fetched
    from kbroker.replica._replica import Replica
    from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.replica")
UNKNOWN: Final = -1


class Outcome(Enum):
    """What became of one partition of an answer, and what its fetcher does then."""

    APPENDED = "records came"
    NOTHING_NEW = "there were none"
    CUT = "the log was cut, and its new end is asked"
    OUT_OF_RANGE = "the leader is asked where its log begins and ends"
    NOT_YET = "the leader does not take us for its follower: soon again"
    FAULT = "what came cannot be taken: again after a whole pause"
    OFFLINE = "our log is out of order: no more"
    DROPPED = "it was meant for another epoch or position"


# The leader has an older image of the controller than this broker, or the other way round.
NOT_YET_CODES: Final = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
})  # fmt: skip


class FollowedPartition(FollowedState):
    """See the head of this file. Made and ended by the controller's thread, else the loop's."""

    def __init__(
        self,
        name: TopicPartition,
        topic_id: UUID,
        leader_epoch: int,
        replica: Replica,
        lines: LogLines,
        wake: Callable[[Replica], None],
        after: FollowedPartition | None = None,
    ) -> None:
        """`wake` answers the consumers that wait here for records. `after`: the one whose place it
        takes, in which a change may be under way."""
        self.name = name
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.replica = replica
        self.key = key_of(topic_id, name.partition)  # as requests name it
        # The fetcher's own: answers of no use, in a row, and whether it is asked no more.
        self.failures = 0
        self.offline = False
        self.leader_high_watermark = UNKNOWN
        self._lines = lines
        self._wake = wake
        self._lock = threading.Lock() if after is None else after._lock
        self._ended = False
        self.changes = 0  # that have begun and that are over: odd while one is under way

    def end(self, wait_s: float = -1) -> bool:
        """Nothing that this leader answers from now on changes the log; from any thread. Whether
        its earlier answers are done with; `wait_s`: to be waited for, below 0 for good."""
        self._ended = True
        return self.is_over(wait_s)

    def is_over(self, wait_s: float = 0) -> bool:
        """Whether no change is under way."""
        if not self._lock.acquire(timeout=wait_s):
            return False
        self._lock.release()
        return True

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def lag(self) -> int:
        """Records below the last known high watermark of the leader that are not here."""
        return max(0, self.leader_high_watermark - self.replica.log_end_offset)

    @property
    def lag_bytes(self) -> int:
        """About how many bytes `lag` is: each record as large as those that are here on average, or
        a byte where none are."""
        lag = self.lag
        if not lag:
            return 0
        found = self.replica.statistics()
        here = found["log_end_offset"] - found["log_start_offset"]
        return max(lag, lag * found["size_bytes"] // max(1, here))

    def bring_to_disk(self) -> Outcome | None:
        """Before it is `asked`: a fetch from the end of the log says that all before is here. By
        `flush.messages` that is on the disk: usually since it came, but not batches before a fault,
        after a cut, or from a time as leader. Else why it cannot be asked."""
        if not self.replica.flush_is_due:
            return None
        if not self._lock.acquire(blocking=False):
            return Outcome.NOT_YET
        self.changes += 1
        try:
            self.replica.flush_if_due()
        except OSError as error:
            return self._disk_failed(error)
        finally:
            self.changes += 1
            self._lock.release()
        return None

    @property
    def start_is_on_file(self) -> bool:
        return self.replica.log.start_on_file >= self.replica.log_start_offset

    @contextmanager
    def being_changed(self) -> Iterator[bool]:
        """What is done in the block counts as a change; False where one is under way."""
        if not self._lock.acquire(blocking=False):
            yield False
            return
        self.changes += 1
        try:
            yield True
        finally:
            self.changes += 1
            self._lock.release()

    def asked(self) -> Asked:
        """From the end of the log, with the epoch of its last batch. Its start as it is on file:
        the leader says that records below are deleted when no start of this broker has them."""
        replica = self.replica
        return Asked(
            self.topic_id,
            self.name.partition,
            self.leader_epoch,
            replica.log_end_offset,
            replica.epochs.latest,
            min(replica.log_start_offset, replica.log.start_on_file),
        )

    def apply(self, asked: Asked, fetched: Fetched, now_ms: int) -> Outcome:
        """`now_ms`: the wall clock's, for the segments that begin."""
        return self._change(asked, lambda: self._apply_locked(asked, fetched, now_ms))

    def enter_range(self, asked: Asked, start_offset: int, end_offset: int) -> Outcome:
        """The leader's log begins and ends there, and ours ends outside of it."""
        return self._change(
            asked, lambda: self._enter_range_locked(asked.fetch_offset, start_offset, end_offset)
        )

    def _change(self, asked: Asked, change_locked: Callable[[], Outcome]) -> Outcome:
        before = self._readable()
        if not self._lock.acquire(blocking=False):
            return Outcome.NOT_YET  # what the leader before has said is being done
        self.changes += 1
        try:
            if not self._is_meant(asked):
                return Outcome.DROPPED
            outcome = change_locked()
        except KafkaError as error:
            outcome = self._refused(error)
        except OSError as error:
            outcome = self._disk_failed(error)
        finally:
            self.changes += 1
            self._lock.release()
        # Consumers that read here wait for that; those that wait beyond the end of a log that was
        # cut are woken, too. Records that are not committed yet are nothing to them.
        if self.replica.has_watchers and (outcome is Outcome.CUT or self._readable() != before):
            self._wake(self.replica)
        return outcome

    def _readable(self) -> tuple[int, int]:
        return self.replica.log_start_offset, self.replica.high_watermark

    def _is_meant(self, asked: Asked) -> bool:
        replica = self.replica
        return (
            not self._ended
            and replica.leader_epoch == self.leader_epoch
            and replica.log_end_offset == asked.fetch_offset
        )

    # --- what the leader says ---

    def _apply_locked(self, asked: Asked, fetched: Fetched, now_ms: int) -> Outcome:
        if fetched.error in NOT_YET_CODES:
            return Outcome.NOT_YET
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return Outcome.OUT_OF_RANGE
        if fetched.error is not ErrorCode.NONE:
            self._say(f"the leader answers {fetched.error.name}")
            return Outcome.FAULT
        if fetched.diverging is not None:
            return self._cut_locked(Divergence(*fetched.diverging), fetched.log_start_offset)
        return self._append_locked(asked, fetched, now_ms)

    def _append_locked(self, asked: Asked, fetched: Fetched, now_ms: int) -> Outcome:
        replica, records = self.replica, fetched.records
        end = asked.fetch_offset
        if records:
            self._begin_with_batch_locked(records)
            end = replica.append_as_follower(records, self.leader_epoch, now_ms)
            replica.flush_if_due()  # before it can lead with records that are not on the disk
        self.leader_high_watermark = fetched.high_watermark
        replica.follow_bounds(self.leader_epoch, fetched.high_watermark, fetched.log_start_offset)
        if end > asked.fetch_offset:
            return Outcome.APPENDED
        if records:
            self._say("the leader sends no whole batch")
            return Outcome.FAULT
        return Outcome.NOTHING_NEW

    def _begin_with_batch_locked(self, records: memoryview) -> None:
        """An empty log takes a batch whole that begins before it: the leader's log begins within
        the batch, where records were deleted. The start follows then."""
        end = self.replica.log_end_offset
        if self.replica.log_start_offset < end or len(records) < HEADER_BYTES:
            return
        head = BATCH_HEADER.unpack_from(records)
        base, last = head[0], head[0] + head[6]
        if 0 <= base < end <= last:
            self.replica.begin_again(base)

    def _cut_locked(self, leader: Divergence, leader_start: int) -> Outcome:
        replica = self.replica
        end, epochs = replica.log_end_offset, replica.epochs.entries
        offset = cut_offset(replica.epochs, end, leader)
        if offset < end and offset <= leader_start:
            return self._begin_again_locked(end, leader_start)
        if offset < end:
            logger.info(
                "%s: cut from %d to %d: its leader's epoch %d ends at %d",
                self.name, end, offset, leader.epoch, leader.end_offset,
            )  # fmt: skip
        replica.truncate_to(offset)
        if replica.log_end_offset == end and replica.epochs.entries == epochs:
            self._say(f"the leader names epoch {leader.epoch}, where both logs agree")
            return Outcome.FAULT
        return Outcome.CUT

    def _enter_range_locked(self, end: int, leader_start: int, leader_end: int) -> Outcome:
        if end < leader_start or end > leader_end == leader_start:
            return self._begin_again_locked(end, leader_start)
        if end > leader_end:
            logger.warning(
                "%s: cut from %d to %d, where its leader's log ends", self.name, end, leader_end
            )
            self.replica.truncate_to(leader_end)
        else:
            self._say("the leader does not know the epoch of its last batch")
            return Outcome.FAULT
        return Outcome.CUT

    def _begin_again_locked(self, end: int, leader_start: int) -> Outcome:
        """Nothing says that what lies below the leader's start is what the leader had there. Its
        producers would be refused, or taken for known, once this broker leads."""
        start = self.replica.log_start_offset
        logger.log(
            logging.WARNING if start < end else logging.INFO,  # there were records, or none
            "%s: lets go of its whole log, from %d to %d; it begins again at %d, where its leader's"
            " begins",
            self.name, start, end, leader_start,
        )  # fmt: skip
        self.replica.begin_again(leader_start)
        return Outcome.CUT

    # --- what our log says ---

    def not_taken(self, error: Exception | None) -> Outcome:
        """Why `Taking` has not taken the records in; None: there was no whole batch."""
        if error is None:
            self._say("the leader sends no whole batch")
            return Outcome.FAULT
        if isinstance(error, KafkaError):
            return self._refused(error)
        if isinstance(error, OSError):
            return self._disk_failed(error)
        raise error

    def _refused(self, error: KafkaError) -> Outcome:
        if error.code in NOT_YET_CODES:
            return Outcome.DROPPED  # the controller has elected another leader meanwhile
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR or not self.replica.online:
            return self._disk_failed(error)
        self._say(f"what the leader sends is refused: {error.message or error.code.name}")
        return Outcome.FAULT

    def _disk_failed(self, error: Exception) -> Outcome:
        if self.replica.online:
            self._say(f"its disk fails: {error}")
            return Outcome.FAULT
        self._say(f"it is offline, and follows no more: {error}")
        return Outcome.OFFLINE

    def _say(self, what: str) -> None:
        self._lines.write(logging.ERROR, str(self.name), "%s: %s", str(self.name), what)
