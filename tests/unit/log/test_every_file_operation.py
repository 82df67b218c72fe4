"""Each file operation of a log's life fails once, and then several at random.

A scenario is run once to count its operations, then once for each of them: that one fails, in the
way such an operation fails, and the life goes on as a broker's does. After the next start, on a
sound disk, what was acknowledged is there, in order, once, and nothing that was deleted comes back.
"""

from __future__ import annotations

import errno
import gc
import random
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from kbroker.testing.file_faults import Fault, FileFaults, Seen
from tests.support import memory
from tests.unit.log.disk_scenario import Life, Work, copy_files, go_on, live, populate, verify

# The errors that such an operation may meet; a number of bytes: it comes up short.
ERRORS = {
    "open": (errno.EMFILE, errno.EIO),
    "mkdir": (errno.ENOSPC,),
    "rename": (errno.EIO,),
    "list": (errno.EIO,),
    "allocate": (errno.ENOSPC,),
    "map": (errno.ENOMEM,),
    "truncate": (errno.EIO,),
}
SEEDS = 60


@pytest.fixture
def place() -> Iterator[Path]:
    with memory.directory() as made:
        yield made


def prepared(directory: Path, *, go_on_after: str) -> Life:
    """A life as the scenario finds it: nothing yet, or a first process that has ended."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    life = Life(directory / "data")
    if go_on_after:
        live(life, populate, crash=go_on_after == "crash")
    return life


def again(life: Life, directory: Path) -> Life:
    """The same life, on a copy of its files."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    if life.directory.exists():
        copy_files(life.directory, directory / "data")
    return replace(deepcopy(life), directory=directory / "data")


def to_both_ends(life: Life, work: Work, place: Path) -> list[Life]:
    """Lives it once: what kill -9 leaves just before its end, and what its end leaves."""
    killed: list[Life] = []
    live(
        life, work, crash=False,
        before_end=lambda: killed.append(replace(again(life, place), opened_before=True)),
    )  # fmt: skip
    return [*killed, life]


class Counted(NamedTuple):
    """The operations of a life that fails nowhere; the last ones are those of its end."""

    seen: list[Seen]
    before_end: int


def count(life: Life, work: Work, *, crash: bool) -> Counted:
    before_end: list[int] = []
    with FileFaults() as faults:
        live(life, work, crash=crash, before_end=lambda: before_end.append(len(faults.look())))
    verify(life)
    return Counted(faults.seen, *before_end)


def faults_of(at: int, operation: Seen) -> list[Fault]:
    faults = [Fault(nth=at, error=e) for e in ERRORS.get(operation.operation, (errno.EIO,))]
    if operation.operation in ("read", "write"):
        faults.append(Fault(nth=at, bytes_max=7))
    return faults


@pytest.mark.slow
@pytest.mark.parametrize("go_on_after", ["", "stop", "crash"])
def test_each_operation_fails_once(place: Path, go_on_after: str) -> None:
    """A process that is killed and one that is stopped do the same up to their end, so they are one
    life here; the operations of the two ends follow, which are not the same."""
    work = go_on if go_on_after else populate
    before = prepared(place / "before", go_on_after=go_on_after)
    stopped = count(again(before, place / "it"), work, crash=False)
    killed = count(again(before, place / "it"), work, crash=True)
    both = stopped.before_end
    assert both == killed.before_end > 100
    assert kinds(stopped.seen[:both]) == kinds(killed.seen[:both])

    def fail(operations: list[Seen], first: int, ends: Callable[[Life], list[Life]]) -> None:
        for at, operation in enumerate(operations[first:], start=first + 1):
            for fault in faults_of(at, operation):
                life = again(before, place / "it")
                with FileFaults(fault):
                    left = ends(life)
                try:
                    for each in left:
                        verify(each)
                except BaseException as error:
                    error.add_note(f"operation {at} of {len(operations)}: {operation}, {fault}")
                    raise

    def to_one_end(crash: bool) -> Callable[[Life], list[Life]]:
        def end(life: Life) -> list[Life]:
            live(life, work, crash=crash)
            return [life]

        return end

    fail(stopped.seen[:both], 0, lambda life: to_both_ends(life, work, place / "killed"))
    fail(stopped.seen, both, to_one_end(crash=False))
    fail(killed.seen, both, to_one_end(crash=True))


def kinds(operations: list[Seen]) -> list[str]:
    return [each.operation for each in operations]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_several_fail_at_random(place: Path, seed: int) -> None:
    chance = random.Random(seed)
    go_on_after = chance.choice(["", "stop", "crash"])
    work = go_on if go_on_after else populate
    life = prepared(place / "it", go_on_after=go_on_after)
    faults = [
        Fault(
            nth=chance.randrange(1, 400),
            times=chance.choice([1, 1, 2, 5, 40]),
            error=chance.choice([errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EINTR, 0]),
            bytes_max=chance.choice([-1, 0, 1, 60, 100]),
        )
        for _ in range(chance.randrange(1, 6))
    ]
    with FileFaults(*faults):
        live(life, work, crash=chance.random() < 0.5)
    gc.collect()
    verify(life, refused_may_be_there=True)
