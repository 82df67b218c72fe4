"""The log of denials: `kbroker.authorizer`, with the lines of Apache Kafka's authorizer.

A client that is denied tries again, a thousand times a second if it likes. So the first denial of a
principal, host, operation, resource and API is written at once; further ones are counted, and after
10 s one line says how many there were, and when the first and the last of them was.

Bound: `DENIALS_MAX` different ones in 10 s, `DENIALS_OF_ONE_MAX` of one principal, so that one that
invents names hides no other; the rest of a principal share a line. Long names are kept by their
beginning and a digest. Any thread; the lock, a leaf, is held for a dictionary only.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.limits import DENIALS_MAX, DENIALS_OF_ONE_MAX, DENIALS_PERIOD_MS
from kbroker.outside_text import label, printable
from kbroker.security.rights import RESOURCE_NAMES, Operation, Resource
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.clock import Clock

_RULE_CHARS_MAX: Final = 1_000
_OTHERS: Final = "others"  # of more principals than have a line each

logger: Final = logging.getLogger("kbroker.authorizer")


class Denied(NamedTuple):
    """What is denied, and to which principal."""

    principal: str
    host: str
    operation: Operation
    resource: Resource
    request: ApiKey


# Called with a denial, its rule, how many there were, and when the first and the last one was, in
# ms of the epoch. Any thread.
Noted = Callable[[Denied, str, int, int, int], object]


class _Counted:
    """Denials that are not written yet, and when their first and last was, in ms."""

    __slots__ = ("count", "first_ms", "last_ms", "rule", "times", "written_ms")

    def __init__(self, written_ms: int) -> None:
        self.written_ms = written_ms
        self.count = 0
        self.first_ms = 0
        self.last_ms = 0
        self.times = 1
        self.rule = ""


class Denials:
    def __init__(self, clock: Clock, noted: Noted | None = None) -> None:
        self._clock = clock
        self._noted = noted
        self._lock = threading.Lock()
        self._counted: dict[Denied, _Counted] = {}
        self._kinds: Counter[str] = Counter()  # of those, by principal
        self._left_out: Counter[str] = Counter()  # by principal

    def note(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource: Resource,
        request: ApiKey,
        times: int,
        rule: str,
        repeats: int = 0,
    ) -> None:
        """`times` is how often the request named the resource; `repeats`: so many more requests
        like it were denied."""
        kept = Resource(resource.type, label(resource.name))
        key = Denied(label(principal), host, operation, kept, request)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            known = self._counted.get(key)
            if known is None and not self._has_room_locked(key.principal):
                who = key.principal
                if who not in self._left_out and len(self._left_out) >= DENIALS_OF_ONE_MAX:
                    who = _OTHERS
                self._left_out[who] += 1 + repeats
                return
            if known is not None:
                if not known.count:
                    known.first_ms = self._clock.wall_ms()
                known.count += 1 + repeats
                known.last_ms = self._clock.wall_ms()
                known.times, known.rule = times, rule
                return
            fresh = self._counted[key] = _Counted(now_ms)
            self._kinds[key.principal] += 1
            if repeats:
                fresh.count, fresh.rule = repeats, rule
                fresh.first_ms = fresh.last_ms = self._clock.wall_ms()
        logger.info("%s", line(principal, host, operation, resource, request, times, rule))
        if self._noted is not None:
            wall_ms = self._clock.wall_ms()
            self._noted(key, rule, 1, wall_ms, wall_ms)

    def lately(self) -> list[Denied]:
        """Those of the last seconds, while they are counted together."""
        with self._lock:
            return list(self._counted)

    def _has_room_locked(self, principal: str) -> bool:
        return len(self._counted) < DENIALS_MAX and self._kinds[principal] < DENIALS_OF_ONE_MAX

    def write(self) -> None:
        """Write what was counted, and forget what was written 10 s ago."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            due = [
                (key, each)
                for key, each in self._counted.items()
                if now_ms - each.written_ms >= DENIALS_PERIOD_MS
            ]
            for key, each in due:
                del self._counted[key]
                if each.count:
                    # Its next denials are counted again, not written one by one.
                    self._counted[key] = _Counted(now_ms)
            self._kinds = Counter(key.principal for key in self._counted)
            left_out, self._left_out = self._left_out, Counter()
        for key, each in due:
            if each.count:
                logger.info(
                    "%s (%d times, from %d to %d ms of the epoch)",
                    line(*key, each.times, each.rule),
                    each.count,
                    each.first_ms,
                    each.last_ms,
                )
                if self._noted is not None:
                    self._noted(key, each.rule, each.count, each.first_ms, each.last_ms)
        for principal, count in left_out.items():
            logger.info(
                "%d more denials of %s, of too many kinds for a line each",
                count,
                printable(principal),
            )


def line(
    principal: str,
    host: str,
    operation: Operation,
    resource: Resource,
    request: ApiKey,
    times: int,
    rule: str,
    *,
    allowed: bool = False,
) -> str:
    return (
        f"Principal = {printable(principal)} is {'Allowed' if allowed else 'Denied'} "
        f"operation = {operation.name} from host = {host} "
        f"on resource = {RESOURCE_NAMES[resource.type]}:LITERAL:{printable(str(resource.name))} "
        f"for request = {request.label} with resourceRefCount = {times} "
        f"based on rule {printable(rule, _RULE_CHARS_MAX)}"
    )
