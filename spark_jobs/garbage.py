"""Files of a table that no process can be reading or writing any more.

Removed is what has been of no use for a grace: parts that a commit dropped before it, units that no
commit names and that were not written to since, temporary files of writers that died.

How old a file is says a clock, which may be set; a machine may sleep while a unit is written. So a
unit that no commit names is given up by a commit of its own before it is removed: either its writer
was first, and then it stays, or the writer is refused and writes it again. What is of no use since
a time that lies ahead by more than the grace is from before the clock was set back: the same commit
says that it counts from now on, or it would stay until that time comes.

The driver's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from spark_jobs.files import Entry, join
from spark_jobs.ledger import Commit, Ledger, LedgerConflict, Part, State, new_unit, unit_of
from spark_jobs.tables import DATA, DATE, SET_ASIDE

_TEMPORARY: Final = ".tmp"
_NO_DATE: Final = "1970-01-01"  # of a unit that nothing was written to


@dataclass(frozen=True)
class _Useless:
    """A whole unit that nothing of is live, else a single part.

    `since_ms` by the clock of then; `known`: all of it has been dropped or given up.
    """

    uri: str
    parts: tuple[Part, ...]
    since_ms: int
    known: bool


def collect(ledger: Ledger, now_ms: int, grace_ms: int, *, dry_run: bool) -> int:
    """Removes what has been of no use for the grace; the number of things removed.

    Where a unit was committed at that moment the next maintenance finds the rest.
    """
    listed = {kind: _units(ledger, kind) for kind in (DATA, SET_ASIDE)}
    state = ledger.state()
    useless = [
        one for kind, units in listed.items() for one in _useless(ledger, state, kind, units)
    ]
    old = [one for one in useless if one.since_ms < now_ms - grace_ms]
    ahead = [one for one in useless if one.since_ms > now_ms + grace_ms]
    unfinished = _unfinished(ledger, now_ms, grace_ms)
    if dry_run:
        return len(old) + len(unfinished)
    known = [one.uri for one in old if one.known]
    for uri in (*unfinished, *known):  # first, or a full disk may have no room for the commit
        ledger.files.delete(uri)
    unknown = [one for one in old if not one.known]
    drops = tuple(part for one in (*unknown, *ahead) for part in one.parts)
    if drops:
        try:
            ledger.commit(Commit(new_unit("garbage"), "garbage", now_ms, drops=drops))
        except LedgerConflict:
            return len(unfinished) + len(known)
    for one in unknown:
        ledger.files.delete(one.uri)
    return len(unfinished) + len(old)


def _units(ledger: Ledger, kind: str) -> list[Entry]:
    found = ledger.files.entries(join(ledger.uri, kind))
    return [entry for entry in found if entry.is_directory and unit_of(entry.name)]


def _useless(ledger: Ledger, state: State, kind: str, units: list[Entry]) -> Iterator[_Useless]:
    live = {unit.part for unit in (state.quarantine if kind == SET_ASIDE else state.units)}
    living = {unit for unit, _ in live}

    def useless(uri: str, entry: Entry, parts: tuple[Part, ...]) -> _Useless:
        times = [state.dropped[part] for part in parts if part in state.dropped]
        known = len(times) == len(parts)
        if not known:
            times.append(_newest(ledger, uri, entry))
        return _Useless(uri, parts, max(times), known)

    for entry in units:
        unit = unit_of(entry.name) or ""
        uri = join(ledger.uri, kind, entry.name)
        below = [one for one in ledger.files.entries(uri) if one.name.startswith(f"{DATE}=")]
        parts = {(unit, one.name.removeprefix(f"{DATE}=")): one for one in below}
        if unit not in living:
            yield useless(uri, entry, tuple(parts) or ((unit, _NO_DATE),))
            continue
        for part, one in parts.items():
            if part not in live:
                yield useless(join(uri, one.name), one, (part,))


def _newest(ledger: Ledger, uri: str, entry: Entry) -> int:
    """When a file of a unit was last written; of one without files, when it was begun.

    Object stores know no time of a directory: S3A says that it is now, whenever it is asked.
    """
    return max(_written(ledger, uri), default=entry.modified_ms)


def _written(ledger: Ledger, uri: str) -> Iterator[int]:
    for one in ledger.files.entries(uri):
        if one.is_directory:
            yield from _written(ledger, join(uri, one.name))
        else:
            yield one.modified_ms


def _unfinished(ledger: Ledger, now_ms: int, grace_ms: int) -> list[str]:
    """Files of writers to the ledger, and of tests of it; old commits and folds go
    when it is folded."""
    return [join(uri, entry.name) for uri in (ledger.uri, ledger.directory)
            for entry in ledger.files.entries(uri)
            if entry.name.startswith(".") and entry.name.endswith(_TEMPORARY)
            and abs(now_ms - entry.modified_ms) > grace_ms]  # fmt: skip
