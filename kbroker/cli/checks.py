"""Checks and their verdicts: what `kbroker health` and `kbroker doctor` print, and their status.

Exit status 0 if all is well, 1 if something is to be warned of, 2 if something fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kbroker.cli.output import say, write_json

OK: Final = "ok"
NOTE: Final = "note"
WARNING: Final = "warning"
FAILING: Final = "failing"
_STATUS: Final = {NOTE: 0, OK: 0, WARNING: 1, FAILING: 2}


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
    return max((_STATUS[check.verdict] for check in checks), default=0)


def report(checks: Sequence[Check], output: str, *, more: bool = False) -> int:
    """Prints them, with `more` all that is known of each, and returns the exit status."""
    status = status_of(checks)
    if output == "json":
        verdicts = {number: verdict for verdict, number in _STATUS.items()}
        write_json({"status": verdicts[status], "checks": [check._asdict() for check in checks]})
        return status
    width = max(len(check.name) for check in checks)
    for check in checks:
        fix = f" -> {check.fix}" if check.fix else ""
        rest = f". {check.more}" if more and check.more else ""
        say(f"{check.verdict:<8} {check.name:<{width}}  {check.seen}{fix}{rest}")
    return status


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
