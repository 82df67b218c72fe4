"""Times that records have in their headers, for share groups that heed them
(kb.share.record.times.enable).

    kb-deliver-at    no member gets the record before this
    kb-expires-at    no member gets it from then on: it is archived

Values are milliseconds since 1970, as text of up to 15 digits; any other value counts as none, and
of several headers with one name the last one counts. Nothing is kept of them: the record is read
again when its time has come, and so it is by another leader. A record that would wait longer than
SHARE_RECORD_WAIT_MS_MAX does not wait. Only batches with one of the names in
their bytes are looked through. A damaged batch has no times.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from kbroker.compression import unpacked_bytes_max
from kbroker.engine.share.reading import Batch
from kbroker.limits import SHARE_RECORD_WAIT_MS_MAX
from kbroker.protocol.record_batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    Headers,
    open_batch,
)
from kbroker.protocol.wire import ProtocolError
from kbroker.replica.share.acquiring import Timed

DELIVER_AT: Final = "kb-deliver-at"
EXPIRES_AT: Final = "kb-expires-at"
_NAMES: Final = (DELIVER_AT.encode(), EXPIRES_AT.encode())
_DIGITS_MAX: Final = 15


class _Times(NamedTuple):
    deliver_ms: int | None
    expires_ms: int | None


def timed_in(
    data: bytes,
    batches: Sequence[Batch],
    wall_ms: int,
    now_ms: int,
    too_far: Callable[[int], object],
) -> list[Timed]:
    """The records that no member gets at this moment, in order. `now_ms` is on the monotonic
    clock; `too_far` is called with the offset of each record that would wait too long."""
    found: list[Timed] = []
    for batch in batches:
        for offset, times in _times_of(data, batch):
            each = _timed(offset, times, wall_ms, now_ms)
            if each is None:
                if (times.deliver_ms or 0) > wall_ms:
                    too_far(offset)
                continue
            before = found[-1] if found else None
            if (
                before is not None
                and before.last_offset + 1 == offset
                and before.until_ms == each.until_ms
            ):
                found[-1] = before._replace(last_offset=offset)
            else:
                found.append(each)
    return found


def _timed(offset: int, times: _Times, wall_ms: int, now_ms: int) -> Timed | None:
    deliver_ms, expires_ms = times
    if expires_ms is not None and expires_ms <= wall_ms:
        return Timed(offset, offset, None)
    if deliver_ms is None or not 0 < deliver_ms - wall_ms <= SHARE_RECORD_WAIT_MS_MAX:
        return None
    # What expires while it waits is archived then.
    next_ms = deliver_ms if expires_ms is None else min(deliver_ms, expires_ms)
    return Timed(offset, offset, now_ms + next_ms - wall_ms)


def _times_of(data: bytes, batch: Batch) -> Iterator[tuple[int, _Times]]:
    if batch.attributes & CONTROL:
        return
    begins = batch.begins + HEADER_BYTES
    if not batch.attributes & CODEC_MASK and not any(
        data.find(name, begins, batch.ends) >= 0 for name in _NAMES
    ):
        return
    piece = data[batch.begins : batch.ends]
    try:
        opened = open_batch(piece, unpacked_bytes_max(len(piece)))
        if any(name in opened.payload for name in _NAMES):
            for record in opened.records():
                if record.headers:
                    yield record.offset, _times(record.headers)
    except ProtocolError:
        return


def _times(headers: Headers) -> _Times:
    values = dict(headers)
    return _Times(_value(values.get(DELIVER_AT)), _value(values.get(EXPIRES_AT)))


def _value(text: bytes | None) -> int | None:
    if text is None or not text.isdigit() or len(text) > _DIGITS_MAX:
        return None
    return int(text)
