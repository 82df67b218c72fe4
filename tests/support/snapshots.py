"""Producer snapshots as the tests write them: entry by entry."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from kbroker.log.engine._results import ProducerEntry
from kbroker.log.engine.producer_snapshots import framed

_ENTRY: Final = struct.Struct(">qhiqiqiq")


def packed(entries: Iterable[ProducerEntry]) -> bytes:
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def encode(entries: Iterable[ProducerEntry]) -> bytes:
    """The bytes of a snapshot file."""
    return framed(packed(entries))
