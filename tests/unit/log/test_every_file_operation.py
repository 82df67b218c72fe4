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
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.testing.file_faults import Fault, FileFaults, Seen
from tests.support import memory
from tests.unit.log.disk_scenario import Life, Work, go_on, live, populate, verify

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
        shutil.copytree(life.directory, directory / "data")
    return replace(deepcopy(life), directory=directory / "data")


def count(life: Life, work: Work, *, crash: bool) -> list[Seen]:
    with FileFaults() as faults:
        live(life, work, crash=crash)
    verify(life)
    return faults.seen


@pytest.mark.slow
@pytest.mark.parametrize("crash", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize("go_on_after", ["", "stop", "crash"])
def test_each_operation_fails_once(place: Path, go_on_after: str, crash: bool) -> None:
    work = go_on if go_on_after else populate
    before = prepared(place / "before", go_on_after=go_on_after)
    seen = count(again(before, place / "it"), work, crash=crash)
    assert len(seen) > 100
    for at, operation in enumerate(seen, start=1):
        faults = [Fault(nth=at, error=e) for e in ERRORS.get(operation.operation, (errno.EIO,))]
        if operation.operation in ("read", "write"):
            faults.append(Fault(nth=at, bytes_max=7))
        for fault in faults:
            life = again(before, place / "it")
            with FileFaults(fault):
                live(life, work, crash=crash)
            try:
                verify(life)
            except BaseException as error:
                error.add_note(f"operation {at} of {len(seen)}: {operation}, {fault}")
                raise


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
