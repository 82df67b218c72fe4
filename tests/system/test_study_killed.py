"""kill -9 in the middle of a study: its servers die with it, and the same command goes on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)  # a loaded machine takes minutes to start the servers

WAIT_S = 240.0
KNOBS = "compression.type@producer,log.flush.interval.messages"
BLOCKS_BEFORE = 6  # a whole group: the codecs, none among them, and the twin
BLOCKS = BLOCKS_BEFORE + 5
STUDY = ("tune", "--knobs", KNOBS, "--rounds", "1", "--seconds", "0.05")
SERVERS = 2  # with the defaults, and the twin


def _study(place: Path) -> subprocess.Popen[str]:
    (place / "data").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "perf.cli", *STUDY, "--directory", str(place / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "KBROKER_CACHE": str(place / "cache")},
    )


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _until_blocks(study: subprocess.Popen[str], wanted: int) -> None:
    assert study.stderr is not None
    for line in study.stderr:
        if line.startswith(f"[{wanted}/"):
            return
    raise AssertionError("the study ended before that block")


def test_servers_die_with_the_study_and_the_next_run_goes_on(tmp_path: Path) -> None:
    with _study(tmp_path) as killed:
        _until_blocks(killed, BLOCKS_BEFORE)
        servers = _children(killed.pid)
        killed.kill()
        assert killed.stderr is not None
        more = killed.stderr.read()
    assert len(servers) == SERVERS
    give_up = time.monotonic() + WAIT_S
    while not all(map(_gone, servers)):  # most of them stand still, and die all the same
        assert time.monotonic() < give_up, [pid for pid in servers if not _gone(pid)]
        time.sleep(0.01)
    with _study(tmp_path) as again:
        table, said = again.communicate(timeout=WAIT_S)
    assert again.returncode == 0, said
    going_on = re.search(rf"going on with (\d+) of {BLOCKS} blocks", said)
    assert going_on is not None
    # It may be blocks ahead of the signal; the last one's line may be in the journal alone.
    done = BLOCKS_BEFORE + len(re.findall(r"^\[", more, re.MULTILINE))
    assert BLOCKS_BEFORE - 1 <= int(going_on[1]) <= done + 1
    # One in which the machine let nothing be answered is void.
    void = table.count("nothing was answered in the window")
    assert void <= 1
    assert f"{BLOCKS - void} blocks in" in table
    assert not any((tmp_path / "cache" / "studies").iterdir())
