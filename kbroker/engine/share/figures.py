"""What happened to the records of share groups at the leaders of this broker, since its start.

A share-partition counts for itself, and gives here what it has counted. Records that a group gives
up on, delivered as often as is allowed, get a line, a few for each group and reason. So do those
whose delivery does not count, since the session of their member was short.

Any thread; the lock is a leaf, held for additions only.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kbroker.limits import LOG_GROUP_LINES_MAX, SHARE_RECORD_WAIT_MS_MAX
from kbroker.log_lines import LogLines
from kbroker.metrics.durations import Durations
from kbroker.replica.share.states import Event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.replica.share.partition import Counts

logger: Final = logging.getLogger("kbroker.share")
lines: Final = LogLines(logger, lines_max=LOG_GROUP_LINES_MAX)

# Why a record is archived, for the metric.
REASONS: Final[Mapping[Event, str]] = {
    Event.LOCK_ENDS: "lock ended",
    Event.SESSION_ENDS: "session ended",
    Event.RELEASE: "released",
    Event.REJECT: "rejected",
    Event.GAP: "gap",
    Event.NOT_THERE: "not readable",
    Event.EXPIRED: "expired",
    Event.USED_UP: "limit lowered",
    Event.LOG_STARTS_LATER: "deleted",
}
# Those of records that no member has accepted or rejected, and that are in the log.
_GIVEN_UP: Final = {
    Event.LOCK_ENDS: "its members did not acknowledge them in time",
    Event.SESSION_ENDS: "the sessions of its members ended with them",
    Event.RELEASE: "its members released them",
    Event.USED_UP: "share.delivery.count.limit was lowered",
}
# Types of acknowledgements, as Apache Kafka names them; gaps are ours.
TYPES: Final[Mapping[Event, str]] = {
    Event.ACCEPT: "Accept",
    Event.RELEASE: "Release",
    Event.REJECT: "Reject",
    Event.RENEW: "Renew",
    Event.GAP: "Gap",
}

_DAY_MS: Final = 24 * 3_600_000

# The outcomes for records of groups with a dead-letter topic.
COPIED: Final = "copied"
LEFT_OUT: Final = "copied in part"
NOT_WRITTEN: Final = "not written"
DELETED: Final = "deleted before"


class ShareFigures:
    """See the module."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._records: Counter[Event] = Counter()
        self._archived: Counter[Event] = Counter()
        self._dead_letters: Counter[str] = Counter()
        self._loads: Final = Durations()

    def add(self, group_id: str, place: Any, counts: Counts) -> None:
        """`place`: the partition, as a line names it."""
        with self._lock:
            self._records.update(counts.records)
            self._archived.update(counts.archived)
        for event, words in _GIVEN_UP.items():
            count = counts.archived[event]
            if count:
                lines.write(
                    logging.WARNING,
                    f"{event.name} {group_id}",
                    "share group %s has given up %d records of %s, from %d on, delivered as often"
                    " as it allows: %s -> see what its members do; kbroker share explain shows a"
                    " record",
                    group_id, count, str(place), counts.first[event], words,
                )  # fmt: skip

        spared = counts.records[Event.SHORT_SESSION_ENDS]
        if spared:
            lines.write(
                logging.INFO,
                f"{Event.SHORT_SESSION_ENDS.name} {group_id}",
                "share group %s: the sessions of members ended soon after they had acquired %d"
                " records of %s; that does not count as a delivery (kb.share.session.end.count)",
                group_id, spared, str(place),
            )  # fmt: skip

    def log_ends_before(self, group_id: str, place: Any, offset: int, log_end: int) -> None:
        """The state that was kept goes up to the offset, and the log does not."""
        lines.write(
            logging.WARNING,
            f"ends before {group_id}",
            "share group %s was at offset %d of %s, which ends at %d: its log has lost records -> "
            "the group gets those that come in their place",
            group_id, offset, str(place), log_end,
        )  # fmt: skip

    def too_far(self, group_id: str, place: Any, offset: int) -> None:
        """The record, and perhaps others after it, would wait too long for its time."""
        lines.write(
            logging.WARNING,
            f"too far {group_id}",
            "share group %s: records of %s, from %d on, have a kb-deliver-at more than %d days"
            " ahead, and do not wait -> see docs/share-groups.md, times of records",
            group_id, str(place), offset, SHARE_RECORD_WAIT_MS_MAX // _DAY_MS,
        )  # fmt: skip

    def loaded(self, took_ms: int) -> None:
        """A share-partition serves; so long after it began to."""
        with self._lock:
            self._loads.note(took_ms * 1_000_000)

    def dead_letters_written(self, count: int, left_out: int) -> None:
        """Copies are in a dead-letter topic; so many of them lack key, value and headers against
        the group's wish."""
        with self._lock:
            self._dead_letters[COPIED] += count - left_out
            self._dead_letters[LEFT_OUT] += left_out

    def dead_letters_lost(self, count: int) -> None:
        """Records are archived without copies."""
        with self._lock:
            self._dead_letters[NOT_WRITTEN] += count

    def dead_letters(self) -> Counter[str]:
        """By outcome."""
        with self._lock:
            found = self._dead_letters.copy()
            found[DELETED] = self._records[Event.LOG_STARTS_LATER]
            return found

    def records(self) -> Counter[Event]:
        with self._lock:
            return self._records.copy()

    def archived(self) -> Counter[Event]:
        with self._lock:
            return self._archived.copy()

    @property
    def loads(self) -> Durations:
        return self._loads
