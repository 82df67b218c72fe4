"""The records that a group has given up at one share-partition, on their way to its dead-letter
topic (KIP-1191).

    begin      a copy of the first ones is to be written, if none is under way
    turn       on a handler: they are read from the log again, and made into one batch
    write      to the topic's leader, here or at another broker
    answer     they are ARCHIVED, and the next ones follow

Nothing is queued: the window has the state of each, and the log has the records. So there are at
most as many as the window allows, a new leader goes on with them, and they keep the group's start
where it is until their copies are written. A copy whose answer is lost is written twice.

What may get better (no leader, too few replicas in sync, no answer) is tried again, for
WAIT_MS_MAX from the first failure on. After that the records are archived without copies, with a
line and a count; so they are at once where the topic is not there, or may not be used. Until a
write succeeds again the next ones are tried once each.

Lock: the share-partition's, held for looks only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.engine.share.copies import Context, Copies, copies_of
from kbroker.engine.share.figures import REASONS, lines
from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import SHARE_DEAD_LETTER_BYTES_MAX, SHARE_DEAD_LETTER_RECORDS_MAX

if TYPE_CHECKING:
    from kbroker.engine.share.led import LedSharePartition
    from kbroker.engine.share.parts import Parts
    from kbroker.engine.share.turns import Turns
    from kbroker.replica.share.partition import ToCopy
    from kbroker.replica.share.states import Event
    from kbroker.types import TopicPartition

WAIT_MS_MAX: Final = 120_000
# Of one record of a batch, not of its topic.
_OF_A_RECORD: Final = (
    ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE,
)  # fmt: skip
AGAIN_MS: Final = 1_000
AGAIN_MS_MAX: Final = 10_000


class Destination(NamedTuple):
    """The partition that takes the copies, and its largest batch."""

    place: TopicPartition
    bytes_max: int


class Refused(NamedTuple):
    """Why there are no copies; `waits`: it may get better by itself."""

    words: str
    waits: bool = False


class Topics(Protocol):
    """The topics of the cluster."""

    def destination(self, topic: str, partition: int) -> Destination | Refused:
        """For copies of records of a partition with this number."""
        ...

    def write(
        self, place: TopicPartition, batch: bytes, done: Callable[[ErrorCode], object]
    ) -> None:
        """`done` is called once, on any thread, perhaps before this returns."""
        ...


class Route(NamedTuple):
    """What the share-partitions of a broker have in common for it. A turn is for one batch."""

    topics: Topics
    turns: Turns


class DeadLetters:
    """See the module."""

    def __init__(self, led: LedSharePartition, parts: Parts, route: Route) -> None:
        self._led: Final = led
        self._parts: Final = parts
        self._route: Final = route
        self._is_busy = False
        self._topic = ""  # of the turn
        self._fails_since_ms: int | None = None
        self._attempts = 0
        self._most = SHARE_DEAD_LETTER_RECORDS_MAX  # records of the next batch
        self.trouble = ""  # why the last attempt failed

    def describe(self, cause: Event | None) -> str:
        """In words, for a record with this cause."""
        topic = self._parts.settings(self._led.key.group_id).dead_letters
        reason = "given up" if cause is None else REASONS[cause]
        trouble = f"; the last try failed: {self.trouble}" if self.trouble else ""
        return f"{reason}; a copy is to be written to {topic or 'no topic'}{trouble}"

    def begin(self) -> None:
        """Some may be given up now. Any thread; raises nothing."""
        with self._led.lock:
            if self._is_busy or not self._led.serves or not self._led.machine.archiving:
                return
            self._is_busy = True
        self._take_turn()

    def _take_turn(self) -> None:
        try:
            self._topic = self._parts.settings(self._led.key.group_id).dead_letters
        except Exception as error:
            self._led.fail(error)
            return
        fails = self._fails_since_ms is not None
        begin = partial(self._led.run, self._turn)
        self._route.turns.take(self._topic, begin, self._led.fail, fails=fails)

    def _turn(self) -> None:
        is_over = True
        try:
            is_over = self._copy()
        finally:
            if is_over:
                self._route.turns.give_back(self._topic)

    def _copy(self) -> bool:
        """False: the turn is over with the answer."""
        led = self._led
        with led.lock:
            if not led.serves:
                return True
            led.machine.log_starts_at(led.log.log_start_offset)
            wanted = led.machine.to_copy(self._most)
        if not wanted:
            self._passed()
            self._archive(())
            return True
        own = self._parts.settings(led.key.group_id)
        if own.dead_letters in ("", led.log.name[0]):
            self._give_up(wanted, "the group has no dead-letter topic any more")
            return True
        to = self._route.topics.destination(own.dead_letters, led.key.partition)
        if isinstance(to, Refused):
            self._fail(wanted, to.words) if to.waits else self._give_up(wanted, to.words)
            return True
        context = Context(
            led.key.group_id, led.log.name, own.deliveries, own.copies_records, to.bytes_max,
            self._parts.clock.wall_ms(),
        )  # fmt: skip
        try:
            copies = self._read(wanted, context)
        except KafkaError as error:
            self._fail(wanted, f"{error.code.name} reading them")
            return True
        except Exception as error:  # else the group would meet it again and again
            self._parts.failures.note("copying records for a dead-letter topic", error)
            self._give_up(wanted, type(error).__name__)
            return True
        wanted = _up_to(wanted, copies.reached)
        if not copies.batch:
            self._passed()
            self._archive(wanted)
            return True
        try:
            self._route.topics.write(to.place, copies.batch, partial(self._answer, wanted, copies))
        except Exception as error:
            self._parts.failures.note("writing to a dead-letter topic", error)
            self._fail(wanted, type(error).__name__)
            return True
        return False

    def _read(self, wanted: Sequence[ToCopy], context: Context) -> Copies:
        """Waits for the disk. KafkaError: the log cannot be read now."""
        log, first = self._led.log, wanted[0].first_offset
        data = log.read(first, SHARE_DEAD_LETTER_BYTES_MAX, whole_first=True, read_committed=False)
        copies = copies_of(data, wanted, context)
        if copies.reached < first:  # a new leader does not know yet up to where it may be read
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return copies

    def _answer(self, wanted: Sequence[ToCopy], copies: Copies, code: ErrorCode) -> None:
        self._route.turns.give_back(self._topic, fails=code.retriable)
        self._led.soon(lambda: self._written(wanted, copies, code))

    def _written(self, wanted: Sequence[ToCopy], copies: Copies, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            if self._fails_since_ms is not None:
                self._say(logging.INFO, "again", "dead letters of share group %s are written again")
            self._passed()
            self._most = min(2 * self._most, SHARE_DEAD_LETTER_RECORDS_MAX)
            self._parts.figures.dead_letters_written(copies.copied, copies.left_out)
            self._archive(wanted)
        elif code.retriable:
            self._fail(wanted, code.name)
        elif code in _OF_A_RECORD and (count := _count(wanted)) > 1:
            self._most = count // 2  # until it is alone, and the others are copied
            self._take_turn()
        else:
            self._give_up(wanted, code.name)

    def _passed(self) -> None:
        """An attempt that fails later has the whole time again."""
        self._fails_since_ms, self._attempts, self.trouble = None, 0, ""

    def _fail(self, wanted: Sequence[ToCopy], words: str) -> None:
        now_ms = self._parts.clock.monotonic_ms()
        self.trouble = words
        if self._fails_since_ms is None:
            self._fails_since_ms = now_ms
            self._say(
                logging.WARNING, "fail",
                "dead letters of share group %s cannot be written now: %s; tried again for %d s",
                words, WAIT_MS_MAX // 1_000,
            )  # fmt: skip
        if now_ms - self._fails_since_ms >= WAIT_MS_MAX:
            self._give_up(wanted, words)
            return
        delay_ms = min(AGAIN_MS << min(self._attempts, 8), AGAIN_MS_MAX)
        self._attempts += 1
        self._parts.call_later(delay_ms, self._take_turn)

    def _give_up(self, wanted: Sequence[ToCopy], words: str) -> None:
        count = _count(wanted)
        self.trouble = words
        self._parts.figures.dead_letters_lost(count)
        self._say(
            logging.WARNING, "lost",
            "share group %s: %d records of %s, from %d on, are archived without a copy in its"
            " dead-letter topic: %s -> see docs/share-groups.md, dead letters",
            count, str(self._led.log.name), wanted[0].first_offset, words,
        )  # fmt: skip
        self._archive(wanted)

    def _archive(self, wanted: Sequence[ToCopy]) -> None:
        self._led.copied([(each.first_offset, each.last_offset) for each in wanted], self._over)

    def _over(self) -> None:
        self._is_busy = False

    def _say(self, level: int, kind: str, words: str, *values: object) -> None:
        group_id = self._led.key.group_id
        lines.write(level, f"dead letters {kind} {group_id}", words, group_id, *values)


def _count(wanted: Sequence[ToCopy]) -> int:
    return sum(each.last_offset - each.first_offset + 1 for each in wanted)


def _up_to(wanted: Sequence[ToCopy], last: int) -> list[ToCopy]:
    return [
        each._replace(last_offset=min(each.last_offset, last))
        for each in wanted
        if each.first_offset <= last
    ]
