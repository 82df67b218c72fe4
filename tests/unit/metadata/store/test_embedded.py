"""What only the embedded store promises: one process, readable refusals, and kill -9."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kbroker.errors import DataDirectoryError
from kbroker.metadata.store.base import StoreUnavailableError, WatchKind
from kbroker.metadata.store.embedded import DATABASE_FILE, LOCK_FILE, EmbeddedStore
from kbroker.metadata.store.watches import THREAD_NAME
from tests.support.own_things import open_below

ROOT = Path(__file__).parents[4]

# Every round is one multi of two nodes; a line is printed only when it was acknowledged.
WRITER = """
import sys
from kbroker.metadata.store.base import Create, Set
from kbroker.metadata.store.embedded import EmbeddedStore
store = EmbeddedStore.open(sys.argv[1])
store.ensure("/n")
store.create("/alive", ephemeral=True)
if not store.exists("/count"):
    store.create("/count", b"0")
first = int(store.get("/count").data)
for number in range(first, first + 100_000):
    store.multi([
        Create(f"/n/{number}", b"%d" % number * 50),
        Set("/count", b"%d" % (number + 1)),
    ])
    print(number, flush=True)
"""


def run(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the process ended with {process.wait()}"
    return line.strip()


@pytest.mark.parametrize("seed", range(4))
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    acknowledged = -1
    for _ in range(2):
        process = run(WRITER, str(tmp_path))
        for _ in range(rng.randrange(1, 120)):
            acknowledged = int(read_line(process))
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0].split()
        if rest:
            acknowledged = int(rest[-1])
        store = EmbeddedStore.open(tmp_path)
        count = int(store.get("/count").data)
        nodes = store.children_data("/n")
        assert count > acknowledged
        assert sorted(nodes, key=int) == [str(number) for number in range(count)]  # all or nothing
        assert all(node.data == name.encode() * 50 for name, node in nodes.items())
        assert not store.exists("/alive")
        store.close()


HOLDER = """
import sys
from kbroker.metadata.store.embedded import EmbeddedStore
store = EmbeddedStore.open(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert read_line(holder) == "held"
        with pytest.raises(DataDirectoryError) as raised:
            EmbeddedStore.open(tmp_path)
        assert f"pid {holder.pid})" in raised.value.message
        assert str(tmp_path) in raised.value.message
        assert raised.value.exit_code == 5
    finally:
        holder.kill()
        holder.communicate()
    EmbeddedStore.open(tmp_path).close()  # the lock died with its holder


def test_the_same_process_is_refused_as_well_until_the_last_session_closed(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    other = store.new_session()
    store.close()
    with pytest.raises(DataDirectoryError, match=f"pid {os.getpid()}"):
        EmbeddedStore.open(tmp_path)
    other.close()
    EmbeddedStore.open(tmp_path).close()


def test_a_stale_lock_file_locks_none_out(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_text("1\n")
    EmbeddedStore.open(tmp_path).close()


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_FILE
    path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(DataDirectoryError, match=str(path)):
        EmbeddedStore.open(tmp_path)
    assert path.read_bytes() == b"no database at all" * 1000
    path.unlink()
    EmbeddedStore.open(tmp_path).close()  # and the lock was given back


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("CREATE TABLE theirs (x)", "not a kbroker metadata store"),
        ("PRAGMA user_version = 99", "schema 99"),
    ],
)
def test_a_strange_or_newer_database_is_refused(
    tmp_path: Path, statement: str, reason: str
) -> None:
    if "user_version" in statement:
        EmbeddedStore.open(tmp_path).close()
    connection = sqlite3.connect(tmp_path / DATABASE_FILE)
    connection.execute(statement)
    connection.close()
    with pytest.raises(DataDirectoryError, match=reason):
        EmbeddedStore.open(tmp_path)


def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    """What a crash in the first millisecond leaves."""
    (tmp_path / DATABASE_FILE).touch()
    store = EmbeddedStore.open(tmp_path)
    assert store.children("/") == []
    store.close()


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirectoryError, match="cannot create"):
        EmbeddedStore.open(tmp_path / "file" / "data")


def test_a_database_that_fails_later_is_unavailable_not_a_crash(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    store.ensure("/n")
    store._tree._connection.execute("PRAGMA max_page_count = 1")  # the disk is full
    with pytest.raises(StoreUnavailableError):
        for number in range(100):
            store.create(f"/n/{number}", b"x" * 10_000)
    store._tree._connection.execute("PRAGMA max_page_count = 100000")
    written = store.children("/n")
    store.create("/n/after", b"")  # and it works again when there is room
    assert store.children("/n") == [*written, "after"]
    store.close()


def test_nothing_is_left(tmp_path: Path) -> None:
    """Descriptors and threads are as many as before."""

    store = EmbeddedStore.open(tmp_path)
    assert open_below(tmp_path) > 0
    assert THREAD_NAME not in {thread.name for thread in threading.enumerate()}
    watch = store.watch("/", WatchKind.DATA, lambda _: None)
    assert store.watches.watch_count == 1
    watch.cancel()
    assert store.watches.watch_count == 0
    store.close()
    assert open_below(tmp_path) == 0
    assert THREAD_NAME not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(DataDirectoryError):
        (tmp_path / LOCK_FILE).unlink()
        (tmp_path / LOCK_FILE).mkdir()
        EmbeddedStore.open(tmp_path)
    assert open_below(tmp_path) == 0


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    store.ensure("/n")
    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.glob("metadata.db*")}
    store.close()
    assert modes == {"metadata.db": 0o600, "metadata.db-wal": 0o600}
    (tmp_path / "metadata.db").chmod(0o640)  # as the owner wants it
    EmbeddedStore.open(tmp_path).close()
    assert (tmp_path / "metadata.db").stat().st_mode & 0o777 == 0o640
