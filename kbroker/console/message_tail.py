"""The live tail: the records of a query as they come, at a bounded rate.

Reading begins at the logs' ends. A topic that is written to faster is not followed record by
record: records beyond the rate are left out and counted, and a reader that lags by more than a few
thousand offsets steps to the end. Owner: the console's thread, which several tails share: none
waits for records, and each gives the thread up after every look, by None. `streams.py` looks again
after a pause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.clock import NS_PER_MS
from kbroker.console.message_query import read_query
from kbroker.console.message_source import choose, columns_of, log_bounds, row_of, topic_of
from kbroker.console.page import Cell, Notice, Tone
from kbroker.console.pages.messages import reading_of
from kbroker.console.records import Budget, OldestFirst
from kbroker.console.search import Filters
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.isolation import READ_COMMITTED

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.console.asked import Asked
    from kbroker.types import TopicPartition

__all__ = ["columns_of", "tail"]

ROWS_PER_S_MAX: Final = 200
# A reader that is so far from the end steps to it.
LAG_OFFSETS_MAX: Final = 5_000
PAYLOAD_CHARS_MAX: Final = 2_000
# One stream ends after this time; the page opens another one.
TAIL_MS_MAX: Final = 20 * 60 * 1000
_STEP_RECORDS_MAX: Final = 20_000
_STEP_BYTES_MAX: Final = 4 * 1024 * 1024
_STEP_MS_MAX: Final = 500
_UTF8_BYTES_MAX: Final = 4
_MS_PER_S: Final = 1_000


def tail(asked: Asked) -> Iterator[Sequence[Cell] | Notice | None]:
    """Rows of `columns_of`; a notice where records were left out; None after each look. Refused and
    KafkaError are raised before the first item, KafkaError also later."""
    query = read_query(asked)
    with_values = asked.messages == "on"
    chosen = choose(topic_of(asked, query.topic), query.partitions)
    clock = asked.client.cluster.clock
    isolation = query.isolation.number
    logs = log_bounds(asked, chosen.partitions, isolation)
    positions = {where: log.end for where, log in logs.items()}
    filters = Filters(query.wanted, asked.pause)
    allowance = _Allowance(clock)
    deadline_ns = clock.monotonic_ns() + TAIL_MS_MAX * NS_PER_MS
    while positions and clock.monotonic_ns() < deadline_ns:
        asked.pause()
        ends = _ends(asked, positions, isolation)
        left_out = 0
        for where, end in ends.items():
            if end - positions[where] > LAG_OFFSETS_MAX:
                left_out += end - positions[where] - ROWS_PER_S_MAX
                positions[where] = end - ROWS_PER_S_MAX
            budget = Budget(
                clock,
                records=_STEP_RECORDS_MAX,
                data_bytes=_STEP_BYTES_MAX,
                time_ms=_STEP_MS_MAX,
            )
            reading = reading_of(asked, query, filters, budget, len(positions))
            reading = reading._replace(
                payload_bytes_max=_UTF8_BYTES_MAX * (PAYLOAD_CHARS_MAX + 1), want=ROWS_PER_S_MAX
            )
            reader = OldestFirst(reading, where, positions[where], end)
            while not (reader.is_over or budget.over or reader.found):
                reader.read_on()
            while reader.found:
                found = reader.take()
                if not allowance.one():
                    left_out += 1
                    continue
                yield row_of(
                    found, query.topic, query.form, PAYLOAD_CHARS_MAX, with_values=with_values
                )
            # To the end of the next request: no partition starves another one.
            positions.pop(where)
            positions[where] = reader.position
        if left_out:
            text = f"{left_out} records were left out: {ROWS_PER_S_MAX} a second are drawn"
            yield Notice(Tone.QUIET, text)
        yield None


def _ends(
    asked: Asked, positions: dict[TopicPartition, int], isolation: int
) -> dict[TopicPartition, int]:
    """Of the logs that have more: of some of them, another time of others."""
    answers = asked.client.fetch(
        positions, max_wait_ms=0, max_bytes=1, partition_max_bytes=1, isolation=isolation
    )
    ends: dict[TopicPartition, int] = {}
    gone: list[TopicPartition] = []
    for where, answer in answers.items():
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            gone.append(where)
        elif answer.error is not ErrorCode.NONE:
            raise KafkaError(answer.error, str(where))
        elif answer.records:
            committed = isolation == READ_COMMITTED and answer.last_stable_offset >= 0
            ends[where] = answer.last_stable_offset if committed else answer.high_watermark
    if gone:
        logs = log_bounds(asked, gone, isolation)
        positions.update((where, log.end) for where, log in logs.items())
    return ends


class _Allowance:
    """Rows that may be drawn now: so many a second, and no more at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._left = float(ROWS_PER_S_MAX)
        self._at_ns = clock.monotonic_ns()

    def one(self) -> bool:
        now_ns = self._clock.monotonic_ns()
        gained = (now_ns - self._at_ns) / (NS_PER_MS * _MS_PER_S) * ROWS_PER_S_MAX
        self._left = min(self._left + gained, float(ROWS_PER_S_MAX))
        self._at_ns = now_ns
        if self._left < 1:
            return False
        self._left -= 1
        return True
