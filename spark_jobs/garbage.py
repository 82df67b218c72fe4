"""Files of a table that nobody can be reading or writing any more.

Removed is what has been of no use for a grace: parts that a commit dropped before it, units that no
commit names and that nobody has written to since, temporary files of writers that died.

How old a file is says a clock, which may be set; a machine may sleep while a unit is written. So a
unit that no commit names is given up by a commit of its own before it is removed: either its writer
was first, and then it stays, or the writer is refused and writes it again.

The driver's thread.
"""

from __future__ import annotations

from typing import Final

from spark_jobs.files import Entry, join
from spark_jobs.ledger import Commit, Ledger, LedgerConflict, Part, State, new_unit, unit_of
from spark_jobs.tables import DATA, DATE, SET_ASIDE

_TEMPORARY: Final = ".tmp"
_NO_DATE: Final = "1970-01-01"  # of a unit that nothing was written to


def collect(ledger: Ledger, before_ms: int, *, dry_run: bool) -> int:
    """Removes what has been of no use since `before_ms`; the number of things removed.

    None where a unit was committed at that moment: the next maintenance finds the rest.
    """
    listed = {kind: _units(ledger, kind) for kind in (DATA, SET_ASIDE)}
    state = ledger.state()
    useless = [found for kind, units in listed.items()
               for found in _useless(ledger, state, kind, units, before_ms)]  # fmt: skip
    doomed = [*(uri for uri, _ in useless), *_unfinished(ledger, before_ms)]
    if dry_run:
        return len(doomed)
    unknown = [part for _, parts in useless for part in parts if part not in state.dropped]
    if unknown:
        try:
            ledger.commit(Commit(new_unit("garbage"), "garbage", before_ms, drops=tuple(unknown)))
        except LedgerConflict:
            return 0
    for uri in doomed:
        ledger.files.delete(uri)
    return len(doomed)


def _units(ledger: Ledger, kind: str) -> list[Entry]:
    found = ledger.files.entries(join(ledger.uri, kind))
    return [entry for entry in found if entry.is_directory and unit_of(entry.name)]


def _useless(
    ledger: Ledger, state: State, kind: str, units: list[Entry], before_ms: int
) -> list[tuple[str, list[Part]]]:
    """Whole units where nothing of them is needed, else single parts: URI, and which it holds."""
    live = {unit.part for unit in (state.quarantine if kind == SET_ASIDE else state.units)}
    living = {unit for unit, _ in live}
    found: list[tuple[str, list[Part]]] = []
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
            found += [(join(uri, part.name), []) for part in of_no_use]
        elif len(of_no_use) == len(parts) and _newest(ledger, uri, entry) < before_ms:
            dates = [part.name.removeprefix(f"{DATE}=") for part in parts] or [_NO_DATE]
            found.append((uri, [(unit, date) for date in dates]))
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
