"""How `kbroker health` and `kbroker doctor` print their checks (`findings/checks.py`), and their
exit status: 0 if all is well, 1 if something is to be warned of, 2 if something fails."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.cli.output import say, write_json
from kbroker.findings.checks import Check, status_of, worst_of


def report(checks: Sequence[Check], output: str, *, more: bool = False) -> int:
    """Prints them, with `more` all that is known of each, and returns the exit status."""
    status = status_of(checks)
    if output == "json":
        document = {
            "status": worst_of(checks),
            "checks": [check._asdict() for check in checks],
        }
        write_json(document)
        return status
    width = max(len(check.name) for check in checks)
    for check in checks:
        fix = f" -> {check.fix}" if check.fix else ""
        rest = f". {check.more}" if more and check.more else ""
        say(f"{check.verdict:<8} {check.name:<{width}}  {check.seen}{fix}{rest}")
    return status
