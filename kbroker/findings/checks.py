"""Checks and their verdicts, as `kbroker health`, `kbroker doctor` and the console have them.

Values and pure functions; `cli/checks.py` prints them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

OK: Final = "ok"
NOTE: Final = "note"
WARNING: Final = "warning"
FAILING: Final = "failing"
_STATUS: Final = {NOTE: 0, OK: 0, WARNING: 1, FAILING: 2}
_VERDICTS: Final = {number: verdict for verdict, number in _STATUS.items()}


class Check(NamedTuple):
    """One line: the verdict, what was looked at, what was seen, and the way out if it is not ok.

    `more` is further detail, printed on request.
    """

    verdict: str
    name: str
    seen: str
    fix: str = ""
    more: str = ""


def status_of(checks: Sequence[Check]) -> int:
    """0 if all is well, 1 with a warning, 2 if something fails."""
    return max((_STATUS[check.verdict] for check in checks), default=0)


def worst_of(checks: Sequence[Check]) -> str:
    """The same as a verdict."""
    return _VERDICTS[status_of(checks)]


def percent(part: int, whole: int) -> int:
    return 100 * part // whole if whole > 0 else 0


def size(count: int) -> str:
    """Bytes for a person."""
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.0f} PB"


DISK_FREE_WARNING_PERCENT: Final = 15
DISK_FREE_FAILING_PERCENT: Final = 5


def disk(name: str, where: str, usable_bytes: int, total_bytes: int) -> Check:
    """How full a volume is; the bounds are those of the alert rules."""
    free = percent(usable_bytes, total_bytes)
    seen = f"{where}: {size(usable_bytes)} of {size(total_bytes)} free ({free} %)"
    if free >= DISK_FREE_WARNING_PERCENT:
        return Check(OK, name, seen)
    verdict = WARNING if free >= DISK_FREE_FAILING_PERCENT else FAILING
    return Check(verdict, name, seen, "delete topics or records, or move to a larger volume")
