"""`python -m perf.follower`: what a warm round of a follower costs, beside another build.

    python -m perf.follower [--baseline DIRECTORY] [--cells 1x100,1x16384,100x100] [--instructions]

A follower is a process of its own without a broker around it (process.py); its leader is a few
lines of Python here (leader.py), which answer at once. A cell is how many partitions are followed,
of which one has a batch in each answer, and its bytes. Each block is some thousand rounds; builds
take turns. Printed are medians over the blocks: CPU of the follower's process for a round, and the
time from an answer to the next fetch, with both sides' socket calls. With --instructions both run
under callgrind instead, and the least block counts: that does not depend on the machine.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from lab import child
from perf.brokers.kbroker import ROOT, built
from perf.follower.leader import Leader
from perf.process import cpu_ns
from perf.tables import aligned

PROCESS: Final = Path(__file__).with_name("process.py")
CELLS: Final = "1x100,1x16384,100x100"
WARM, ROUNDS, BLOCKS = 500, 2_000, 9
COUNTED_ROUNDS, COUNTED_BLOCKS = 300, 3
CONTROL_WAIT_S: Final = 60.0
STOP_WAIT_S: Final = 30.0
_TOTAL: Final = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


class Cell(NamedTuple):
    """How many partitions are followed, and how large the batch of an answer is."""

    partitions: int
    batch_bytes: int

    @classmethod
    def named(cls, name: str) -> Cell:
        """ValueError: there is no such cell."""
        partitions, _, batch_bytes = name.partition("x")
        cell = cls(int(partitions), int(batch_bytes))
        if min(cell) < 1:
            raise ValueError(f"no cell {name}")
        return cell


class Block(NamedTuple):
    """Of one round."""

    cpu_us: float
    took_us: float


class Follower:
    """The process, and its leader here."""

    def __init__(self, leader: Leader, process: subprocess.Popen[bytes], counts: Path) -> None:
        self._leader = leader
        self._process = process
        self._counts = counts

    def block(self, rounds: int) -> Block:
        before_ns = cpu_ns(self._process.pid)
        took_ns = self._leader.serve(rounds)
        cpu_us = (cpu_ns(self._process.pid) - before_ns) / 1000 / rounds
        return Block(cpu_us, statistics.median(took_ns) / 1000)

    def counted(self, rounds: int) -> float:
        """Instructions of a round; under callgrind."""
        self._control("--instr=on")
        self._leader.serve(5)  # callgrind translates code once; that is no part of a round
        self._control("--zero")
        self._leader.serve(rounds)
        self._control("--dump")
        self._control("--instr=off")
        total = 0
        for path in self._counts.parent.glob(f"{self._counts.name}.*"):
            found = _TOTAL.findall(path.read_text(errors="replace"))
            total = max(total, int(found[-1]) if found else 0)
            path.unlink()
        if not total:
            raise RuntimeError("callgrind has written no total")
        return total / rounds

    def _control(self, what: str) -> None:
        subprocess.run(
            ["callgrind_control", what, str(self._process.pid)], stdout=subprocess.DEVNULL,
            timeout=CONTROL_WAIT_S, check=True,
        )  # fmt: skip


@contextmanager
def following(cell: Cell, sources: Path, root: Path, *, is_counted: bool) -> Iterator[Follower]:
    """A follower of those sources, warm."""
    root.mkdir(parents=True)
    leader = Leader(cell.batch_bytes)
    counts = root / "counts"
    tool: list[str] = []
    if is_counted:
        tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no",
                f"--callgrind-out-file={counts}"]  # fmt: skip
    command = [*tool, sys.executable, str(PROCESS), str(leader.port), str(cell.partitions),
               str(root)]  # fmt: skip
    variables = {**os.environ, "PYTHONPATH": str(sources)}
    with ExitStack() as ends:
        ends.callback(leader.close)
        log = ends.enter_context((root / "log").open("wb"))
        process = child.start(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=variables, cwd=root
        )
        ends.callback(_end, process)
        leader.begin()
        leader.serve(WARM)
        yield Follower(leader, process, counts)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def measured(cell: Cell, builds: Mapping[str, Path], blocks: int) -> dict[str, list[Block]]:
    with tempfile.TemporaryDirectory(prefix="kbroker-rounds-") as folder, ExitStack() as ends:
        followers = {
            name: ends.enter_context(
                following(cell, sources, Path(folder) / name, is_counted=False)
            )
            for name, sources in builds.items()
        }
        found: dict[str, list[Block]] = {name: [] for name in builds}
        for _ in range(blocks):
            for name, follower in followers.items():
                found[name].append(follower.block(ROUNDS))
        return found


def counted(cell: Cell, builds: Mapping[str, Path]) -> dict[str, float]:
    found = {}
    for name, sources in builds.items():
        with (
            tempfile.TemporaryDirectory(prefix="kbroker-rounds-") as folder,
            following(cell, sources, Path(folder) / name, is_counted=True) as follower,
        ):
            found[name] = min(follower.counted(COUNTED_ROUNDS) for _ in range(COUNTED_BLOCKS))
    return found


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perf.follower", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--baseline", type=Path, metavar="DIRECTORY", help="another build, beside")
    parser.add_argument("--cells", default=CELLS, help="partitions x bytes of a batch")
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--instructions", action="store_true", help="count, under callgrind")
    asked = parser.parse_args(words)
    try:
        cells = {name: Cell.named(name) for name in asked.cells.split(",")}
    except ValueError as error:
        parser.error(str(error))
    if asked.instructions and shutil.which("callgrind_control") is None:
        print("error: valgrind is missing -> apt-get install valgrind", file=sys.stderr)
        return 1
    builds = {"kbroker": ROOT}
    if asked.baseline is not None:
        builds["baseline"] = built(asked.baseline)
    rows = []
    for name, cell in cells.items():
        if asked.instructions:
            rows.append([name, *to_cells([*counted(cell, builds).values()])])
            continue
        blocks = measured(cell, builds, asked.blocks).values()
        rows.append([
            name,
            *to_cells([statistics.median(each.cpu_us for each in one) for one in blocks]),
            *to_cells([statistics.median(each.took_us for each in one) for one in blocks]),
        ])  # fmt: skip
    figures = ["instructions"] if asked.instructions else ["CPU us", "round us"]
    beside = ["baseline", "ratio"] if len(builds) > 1 else []
    head = ["cell", *(each for figure in figures for each in (figure, *beside))]
    print("\n".join(aligned(head, rows)))
    return 0


def to_cells(values: Sequence[float]) -> list[str]:
    """The value, and where another build's is there, that and the ratio."""
    texts = [f"{each:,.0f}" if each >= 1000 else f"{each:.1f}" for each in values]
    return [*texts, f"{values[0] / values[1]:.3f}"] if len(values) > 1 else texts


if __name__ == "__main__":
    sys.exit(main())
