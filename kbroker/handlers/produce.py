"""The cold half of Produce: batches that C cannot check alone.

The hot path sends a whole request here, before anything of it is written, when one of its batches
is compressed with a codec for which this machine has no system library. Its records are unpacked
here with the bundled codecs, bounded in memory, and walked in C; then the request goes back for its
append with a verdict per batch, so the order of appends and the answer are the hot path's own.

Runs on a request-handler thread, which has given up the role of taker; the unpacking releases the
GIL. A request whose topic wants another codec than the producer's (`compression.type`) is refused
at the topic's configuration for now, so it does not come here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.log.validator import check_batch

if TYPE_CHECKING:
    from kbroker._net import Request
    from kbroker.handlers._hot import HotPath


class ColdProduce:
    """Callable as a registry handler."""

    def __init__(self, hot: HotPath) -> None:
        self._hot = hot

    def handle(self, services: object, request: Request) -> None:
        verdicts = {
            ordinal: check_batch(batch) for ordinal, batch in self._hot.produce_batches(request)
        }
        self._hot.produce_checked(request, verdicts)
