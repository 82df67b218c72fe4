"""Files of a table that nobody can be reading or writing any more.

Removed is what has been of no use for a grace: parts that a commit dropped before it, units that no
commit names and that nobody has written to since, temporary files of writers that died. The
directories are listed before the ledger is read, so a unit that is committed in between is known as
live.

The driver's thread.
"""

from __future__ import annotations

from typing import Final

from spark_jobs.files import Entry, join
from spark_jobs.ledger import Ledger, State, unit_of
from spark_jobs.tables import DATA, DATE, SET_ASIDE

_TEMPORARY: Final = ".tmp"


def collect(ledger: Ledger, before_ms: int, *, dry_run: bool) -> int:
    """Removes what has been of no use since `before_ms`; the number of things removed."""
    listed = {kind: _units(ledger, kind) for kind in (DATA, SET_ASIDE)}
    state = ledger.state()
    doomed = [uri for kind, units in listed.items()
              for uri in _useless(ledger, state, kind, units, before_ms)]  # fmt: skip
    doomed += _unfinished(ledger, before_ms)
    if not dry_run:
        for uri in doomed:
            ledger.files.delete(uri)
    return len(doomed)


def _units(ledger: Ledger, kind: str) -> list[Entry]:
    found = ledger.files.entries(join(ledger.uri, kind))
    return [entry for entry in found if entry.is_directory and unit_of(entry.name)]


def _useless(
    ledger: Ledger, state: State, kind: str, units: list[Entry], before_ms: int
) -> list[str]:
    """Whole units where nothing of them is needed, else single parts."""
    live = {unit.part for unit in (state.quarantine if kind == SET_ASIDE else state.units)}
    living = {unit for unit, _ in live}
    found = []
    for entry in units:
        unit = unit_of(entry.name) or ""
        uri = join(ledger.uri, kind, entry.name)
        parts = [part for part in ledger.files.entries(uri) if part.name.startswith(f"{DATE}=")]
        of_no_use = [
            part for part in parts
            if (which := (unit, part.name.removeprefix(f"{DATE}="))) not in live
            and state.dropped.get(which, _newest(ledger, join(uri, part.name), part)) < before_ms
        ]  # fmt: skip
        if unit in living:
            found += [join(uri, part.name) for part in of_no_use]
        elif len(of_no_use) == len(parts) and _newest(ledger, uri, entry) < before_ms:
            found.append(uri)
    return found


def _newest(ledger: Ledger, uri: str, entry: Entry) -> int:
    """When anything in a unit was last written."""
    below = ledger.files.entries(uri)
    return max([entry.modified_ms, *(
        _newest(ledger, join(uri, one.name), one) if one.is_directory else one.modified_ms
        for one in below
    )])  # fmt: skip


def _unfinished(ledger: Ledger, before_ms: int) -> list[str]:
    """Of the ledger's own writers; old commits and folds go when it is folded."""
    return [join(ledger.directory, entry.name) for entry in ledger.files.entries(ledger.directory)
            if entry.name.startswith(".") and entry.name.endswith(_TEMPORARY)
            and entry.modified_ms < before_ms]  # fmt: skip
