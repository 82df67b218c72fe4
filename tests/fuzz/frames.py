"""Hostile frames by the million, beside a neighbour that must not notice.

    python -m tests.fuzz.frames --frames 10000000 --seed 1      the full run, against its own broker
    python -m tests.fuzz.frames --seed 1 --number 4711          one frame again: bytes and answer

Phases: the neighbour alone; beside sound frames on four connections a worker, as fast as they are
answered (the warm-up); beside the hostile frames; beside sound frames at the rate that these had,
over as many connections of the same kinds, which is the load to compare with. A phase begins when
its processes have begun to send. What is printed at the end is checked too, and decides the exit
status:

    the broker lives and answers; nothing hung; every answer is sound, none UNKNOWN_SERVER_ERROR
    the paths that are meant were reached: appends, record walk, unpacking, closes
    the memory in use grew by at most 20 MB since a tenth of the frames; no descriptor is left
    the neighbour had no error, and its p99 is at most twice that beside as many sound frames
    the log has no traceback and a bounded number of lines

`--bootstrap HOST:PORT --pid N` uses a broker that runs elsewhere on this machine.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import re
import secrets
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Final, NamedTuple, Self, TypeVar

from kbroker.types import ApiKey
from tests.fuzz import report
from tests.fuzz.answers import Tally
from tests.fuzz.corpus import Ids
from tests.fuzz.leavers import Leavers
from tests.fuzz.mutate import BLOCK, CALM, Frame, Maker
from tests.fuzz.neighbour import Neighbour
from tests.fuzz.talk import CONNECTIONS, Talker
from tests.fuzz.target import NEIGHBOUR, OVERRIDES, Admin, prepare, tidy
from tests.fuzz.way import LISTENERS, FuzzedBroker, Way
from tests.system import process_facts

PHASE_S: Final = 6.0
COMPARED_S: Final = 20.0  # 4,000 produces of the neighbour's
# Sound frames wait where hostile ones are refused: for as many a second it takes more connections.
COMPARED_CONNECTIONS: Final = 3
PROGRESS_S: Final = 10.0
BEFORE_LOGIN: Final = {
    int(api) for api in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
}
ROUNDS: Final = 4
STRANGERS_SHARE: Final = 10  # each frame of theirs costs a connection
TIDY_S: Final = 2.0
T = TypeVar("T")
COUNT_S: Final = 0.5
SETTLES_S: Final = 2.0
FILES_CLOSE_S: Final = 60.0
OBJECTS_GO_S: Final = 30.0
WORKERS: Final = 2
MEMBERS: Final = "kafka_consumergroup_members"


class Job(NamedTuple):
    address: tuple[str, int]
    ids: Ids
    seed: int
    first_block: int
    step: int
    rate: float
    blocks: int = 0  # of hostile frames; 0: sound ones, for so long
    seconds: float = 0.0
    kinds: bool = False  # sound ones are sent as hostile ones are: over all kinds of connections
    way: Way = Way()


def work(pipe: Connection) -> None:
    """A worker process: one job after the other, until the pipe is closed."""
    os.nice(5)  # the broker and the neighbour go first: it is not the generator that is measured
    makers: dict[int, Maker] = {}
    with suppress(EOFError):
        while True:
            job: Job = pipe.recv()
            if job.seed not in makers:
                makers[job.seed] = Maker(job.seed, job.ids)
            _work(job, makers[job.seed], pipe)


def _work(job: Job, maker: Maker, pipe: Connection) -> None:
    """Every `step`-th block from `first_block` on."""
    blocks = _blocks(job, maker)
    pipe.send(None)
    pipe.recv()  # all of them begin together
    tally = Tally()
    talker = Talker(
        job.address, tally, blocks, rate=job.rate,
        connections=CONNECTIONS * (COMPARED_CONNECTIONS if job.kinds else 1),
        first_number=lambda at: BLOCK * (job.first_block + at * job.step), way=job.way,
    )  # fmt: skip
    until = float("inf") if job.blocks else time.monotonic() + job.seconds
    talker.run(lambda tally: pipe.send(tally.frames), until)
    pipe.send(tally)


def _blocks(job: Job, maker: Maker) -> Iterator[list[Frame]]:
    if job.blocks:
        return map(maker.block, range(job.first_block, job.blocks, job.step))
    kinds = [kind for kind, _ in maker.block(job.first_block)] if job.kinds else [CALM] * BLOCK
    made = map(maker.sound, itertools.count(job.first_block, job.step))
    return (
        [(kind, frame) for kind, (_, frame) in zip(kinds, block, strict=True)] for block in made
    )


class Workers:
    """Processes that have begun and do the jobs of one phase after the other. A context manager."""

    def __init__(self, count: int) -> None:
        self.frames: list[int] = []
        self.tally = Tally()
        began = [self._begun() for _ in range(count)]
        self._pipes = [pipe for pipe, _ in began]
        self._processes = [process for _, process in began]

    def _begun(self) -> tuple[Connection, SpawnProcess]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return ours, process

    def begin(self, jobs: list[Job]) -> None:
        """One for each process."""
        self.frames, self.tally = [0] * len(jobs), Tally()
        for index, process in enumerate(self._processes):
            if not process.is_alive():  # `wait` has noted it
                self._pipes[index], self._processes[index] = self._begun()
        for pipe, job in zip(self._pipes, jobs, strict=True):
            pipe.send(job)
        for pipe in self._pipes:
            pipe.recv()
        for pipe in self._pipes:
            pipe.send(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.terminate()
            process.join()

    def wait(self, each_second: Callable[[int], None]) -> Tally:
        live = set(range(len(self._pipes)))
        while live:
            for index in list(live):
                while index in live and self._pipes[index].poll(0.05):
                    self._take(index, live)
            each_second(sum(self.frames))
        return self.tally

    def _take(self, index: int, live: set[int]) -> None:
        try:
            message = self._pipes[index].recv()
        except EOFError:
            self.tally.fail(f"worker {index} ended without a result")
            self._processes[index].join()
            live.discard(index)
            return
        if isinstance(message, Tally):
            self.frames[index] = message.frames
            self.tally.add(message)
            live.discard(index)
        else:
            self.frames[index] = message


def message(metrics: str) -> tuple[dict[str, int], report.Memory]:
    """Live objects by kind, and the memory in use, as the broker's admin port shows them."""
    names = "live_objects", "memory_used_bytes", "python_blocks"
    query = "&".join(f"name={name}" for name in (*names, MEMBERS))
    with urllib.request.urlopen(f"{metrics}/metrics?{query}", timeout=60) as answer:
        text = answer.read().decode()
    rows = re.findall(r"^kbroker_(\w+?)(?:\{kind=\"(\w+)\"\})? ([0-9.e+]+)$", text, re.MULTILINE)
    found = {(name, kind): int(float(value)) for name, kind, value in rows}
    objects = {kind: count for (name, kind), count in found.items() if name == names[0]}
    # A member that has joined and is in no generation yet is not published to C. One that was
    # given an id and has not come back with it keeps all of them waiting, for half an hour at most.
    joined = re.findall(rf"^{MEMBERS}{{.*}} ([0-9.e+]+)$", text, re.MULTILINE)
    objects["members"] = max(objects["members"], sum(int(float(count)) for count in joined))
    used, blocks = found[names[1], ""], found[names[2], ""]
    return objects, report.Memory(used, blocks, objects["session_partitions"])


def least(sample: Callable[[], T], size: Callable[[T], int], wanted: int) -> T:
    """The least of some samples of another process, as when it was warm: what the last bomb
    unpacked to may just be on its way back, and deleted logs stay for a moment."""
    found = sample()
    until = time.monotonic() + SETTLES_S
    while size(found) > wanted and time.monotonic() < until:
        time.sleep(0.1)
        found = min(found, sample(), key=size)
    return found


class Run:
    """One fuzzing of one broker."""

    def __init__(self, address: tuple[str, int], pid: int, options: argparse.Namespace) -> None:
        self.address = address
        # Hostile frames may go to another listener than the neighbour's, and in another way.
        self.fuzzed: tuple[str, int] = getattr(options, "fuzzed", address)
        self.way: Way = getattr(options, "way", Way())
        self.pid = pid
        self.frames = options.frames
        self.seed = options.seed
        self.rate = options.rate / options.workers
        self.workers = options.workers
        self.judged = getattr(options, "judged", True)  # the neighbour's latencies
        self.compared_s = getattr(options, "compared_s", COMPARED_S)
        self.own = not getattr(options, "bootstrap", None)  # its topics are its own
        self.admin = Admin(address)
        self.ids = prepare(self.admin)
        self.metrics = getattr(options, "metrics", "")  # the address of the broker's admin port
        self._tidied = 0.0
        self._reported_s = 0.0
        self._counted = 0.0

    def _jobs(self, rate: float, **kind: Any) -> list[Job]:
        return [
            Job(self.fuzzed, self.ids, self.seed, index, self.workers, rate, way=self.way, **kind)
            for index in range(self.workers)
        ]

    def _sound(
        self, workers: Workers, result: report.Result, phase: str, rate: float, **kind: Any
    ) -> None:
        workers.begin(self._jobs(rate, **kind))
        result.mark(phase)
        tally = workers.wait(lambda frames: None)
        result.rates[phase] = tally.frames / (time.monotonic() - result.marks[-1][1])
        result.failures += [f"{phase}: {failure}" for failure in tally.failures]
        result.mark("between two phases")

    def run(self) -> report.Result:
        with Workers(self.workers) as workers:
            return self._run(workers)

    def _run(self, workers: Workers) -> report.Result:
        result = report.Result(seed=self.seed, judged=self.judged)
        neighbour = Neighbour(self.address, NEIGHBOUR)
        result.mark("alone")
        # Without a verdict no latencies are compared with those of these phases.
        phase_s = PHASE_S if self.judged else PHASE_S / 3
        time.sleep(phase_s / 2)
        result.mark("between two phases")
        self._sound(workers, result, report.WARM_UP, self.rate, seconds=phase_s)
        result.files_before = process_facts.open_files(self.pid)
        self._started = time.monotonic()
        blocks = max(1, self.frames // BLOCK)
        # In rounds, so that a slow moment of the machine does not part the two kinds.
        compared = self.judged and self.compared_s > 0
        rounds = min(ROUNDS, blocks) if compared else 1
        ends = [blocks * number // rounds for number in range(rounds + 1)]
        for first, end in pairwise(ends):
            self._hostile(workers, result, first, end)
            if self.judged:
                self._resident(result, last=end == blocks)
            if compared:
                self._compared(workers, result, rounds)
        for stranger in self.way.short_of():
            self._strange(workers, result, stranger)
        neighbour.stop()
        result.neighbour = neighbour
        if self.own:
            tidy(self.admin, all_made=True)
        if self.metrics:
            result.objects = self._settled_objects()
            wanted = result.memory_warm.kept if result.memory_warm else 0
            result.memory_after = least(
                lambda: message(self.metrics)[1], lambda memory: memory.kept, wanted
            )
        if self.judged:
            result.files_after = self._settled_files(result.files_max())
        self.admin.close()
        return result

    def _hostile(self, workers: Workers, result: report.Result, first: int, end: int) -> None:
        """Blocks `first` up to `end`, and clients that leave beside them."""
        leavers = Leavers(self.address, self.seed)
        before, began = result.tally.frames, time.monotonic()
        jobs = self._jobs(self.rate, blocks=end)
        workers.begin([job._replace(first_block=first + job.first_block) for job in jobs])
        result.mark(report.HOSTILE)
        result.tally.add(workers.wait(lambda frames: self._watch(result, before + frames)))
        result.mark("between two phases")
        leavers.stop()
        result.acts += leavers.acts
        result.took_s += time.monotonic() - began
        result.rates[report.HOSTILE] = result.tally.frames / result.took_s

    def _strange(self, workers: Workers, result: report.Result, way: Way) -> None:
        """Frames of clients that have not logged in, or do not speak TLS."""
        blocks = max(self.workers, self.frames // BLOCK // STRANGERS_SHARE)
        workers.begin([job._replace(way=way) for job in self._jobs(self.rate, blocks=blocks)])
        tally = workers.wait(lambda frames: None)
        result.strangers.add(tally)
        answered = {key for key, _ in tally.answers} - BEFORE_LOGIN
        result.failures += [f"a stranger was answered: API {key}" for key in sorted(answered)]

    def _resident(self, result: report.Result, *, last: bool) -> None:
        resident = process_facts.resident_bytes(self.pid)
        result.resident_warm = result.resident_warm or resident
        if last:
            result.resident_after = least(
                lambda: process_facts.resident_bytes(self.pid), int, result.resident_warm
            )

    def _compared(self, workers: Workers, result: report.Result, rounds: int) -> None:
        """As many sound frames, for a round's part of the time."""
        rate = result.rates[report.HOSTILE] / self.workers
        seconds = self.compared_s / rounds
        self._sound(workers, result, report.COMPARED, rate, seconds=seconds, kinds=True)

    def _warms(self, result: report.Result, now: float) -> None:
        """The least of some samples: one may fall into the unpacking of a bomb."""
        resident = process_facts.resident_bytes(self.pid)
        result.resident_warm = min(result.resident_warm or resident, resident)
        if self.metrics and now - self._counted > COUNT_S:
            self._counted = now
            memory = message(self.metrics)[1]
            least = result.memory_warm
            if least is None or memory.kept < least.kept:
                result.memory_warm = memory

    def _settled_objects(self) -> dict[str, int]:
        # Members whose clients wait no more are waited for by their group until then.
        until = time.monotonic() + OBJECTS_GO_S
        while report.beyond(counts := message(self.metrics)[0]) and time.monotonic() < until:
            time.sleep(0.2)
        return counts

    def _settled_files(self, wanted: int) -> int:
        # Deleted logs keep their files for a moment.
        until = time.monotonic() + FILES_CLOSE_S
        while (files := process_facts.open_files(self.pid)) > wanted and time.monotonic() < until:
            time.sleep(0.1)
        return files

    def _watch(self, result: report.Result, frames: int) -> None:
        now = time.monotonic()
        if self.own and now - self._tidied > TIDY_S:
            self._tidied = now
            tidy(self.admin)
        share = frames / self.frames
        if 0.10 <= share < 0.15 or (share >= 0.15 and not result.resident_warm):
            self._warms(result, now)
        if now - self._reported_s > PROGRESS_S:
            self._reported_s = now
            speed = frames / max(now - self._started, 0.001)
            resident = process_facts.resident_bytes(self.pid)
            line = f"{frames:>12,} frames  {speed:>8,.0f}/s  resident {resident / 1e6:.1f} MB"
            if self.metrics:
                line += f"  in use {message(self.metrics)[1].kept / 1e6:.1f} MB"
            print(line, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rate", type=float, default=0, help="frames a second; 0: all it can")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--number", type=int, help="send this frame alone and show it")
    parser.add_argument("--bootstrap")
    parser.add_argument("--pid", type=int, help="of the broker at --bootstrap")
    parser.add_argument(
        "--unjudged",
        dest="judged",
        action="store_false",
        help="no phase to compare latencies with, no wait until files are closed",
    )
    parser.add_argument(
        "--listener", choices=LISTENERS, default="plain",
        help="what the hostile frames' listener wants first; clients that do not do it come, too",
    )  # fmt: skip
    parser.add_argument("--metrics", help="http://host:port of its admin port")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = secrets.randbelow(1 << 31)
    if options.bootstrap and not options.pid:
        parser.error("--bootstrap needs --pid: memory and files are read from the kernel")
    return options


def main() -> int:
    options = arguments()
    print(f"seed {options.seed}", flush=True)
    with ExitStack() as stack:
        broker = None
        if options.bootstrap:
            host, _, port = options.bootstrap.rpartition(":")
            address, pid = (host, int(port)), options.pid
        else:
            broker = stack.enter_context(FuzzedBroker(options.listener, dict(OVERRIDES)))
            address, pid = broker.address, broker.pid
            options.fuzzed, options.way = broker.fuzzed_address, broker.way
        if options.number is not None:
            report.show_one(address, options.seed, options.number)
            return 0
        options.metrics = options.metrics or (broker.admin if broker is not None else "")
        result = Run(address, pid, options).run()
        if broker is not None:
            result.log = broker.log_text()
    result.check()
    print(result.text())
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
