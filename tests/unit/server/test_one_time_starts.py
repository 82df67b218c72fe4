"""A part that starts once, while a broker serves, starts later where it could not at first.

Each such part is used while descriptors are used up, memory is short, no thread can be started, or
an import fails; and again after the shortage, as the next request or the next period does. A part
that begins before the ready line ends the start with a line instead (`test_start_chain.py`,
`test_failed_start.py`). The scheduler begins those right after it again (`test_late_steps.py`).
The HTTP side of the admin port has a test of its own (`test_admin_port.py`), as have the
coordinators of transactions and of share state (`test_transactions_on_demand.py`,
`test_share_groups_on_demand.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, Protocol

import pytest

from kbroker.clock import Clock, ManualClock
from kbroker.config import BrokerConfig
from kbroker.coordinator.consumer_group.beside import Beside
from kbroker.coordinator.runtime.loader import Loader
from kbroker.failures import Failures
from kbroker.limits import JWKS_FETCH_MS_MAX, TASK_RETRY_MS
from kbroker.log.manager import LogManager
from kbroker.log.upkeep.lane import ThreadLane, Work
from kbroker.metadata.store.base import EventType, WatchKind
from kbroker.metadata.store.watches import WatchRegistry
from kbroker.peer.loop_on_demand import LoopOnDemand
from kbroker.protocol import messages
from kbroker.purgatory.purgatory import Purgatory
from kbroker.purgatory.timer import Timer
from kbroker.replica.log_tasks import LogTasks
from kbroker.scheduler import Scheduler
from kbroker.security.jwks_source import JwksSource
from kbroker.server.late_steps import LateSteps
from kbroker.server.share_service import ShareServiceOnDemand
from kbroker.testing.inspection import wait_until
from tests.support.source_tree import relative, source_files
from tests.unit.log.two_directories import NAME, Two
from tests.unit.net.harness import Rig, running
from tests.unit.security.test_oauth import Signer, key_set

DESCRIPTORS, MEMORY, THREAD, IMPORT = "no descriptors", "no memory", "no thread", "no import"
IMPORTS: Final = (DESCRIPTORS, MEMORY, IMPORT)
THREADS: Final = (MEMORY, THREAD)


class Case(Protocol):
    def use(self) -> object:
        """The first use, and each later one; raises the error that its caller would see."""

    def serves(self) -> object: ...

    def end(self) -> object: ...


class Start(NamedTuple):
    make: Callable[[Path], Case]
    short_of: tuple[str, ...]  # what it needs
    modules: tuple[str, ...] = ()  # which its first use imports


class OnTheLoop:
    """Peers and the HTTP side are its tenants."""

    def __init__(self, place: Path) -> None:
        self.loop = LoopOnDemand()
        self.done = False

    def use(self) -> None:
        work = asyncio.sleep(0, True)
        try:
            self.done = self.loop.submit(work).result(30)
        finally:
            work.close()

    def serves(self) -> bool:
        return self.done

    def end(self) -> None:
        self.loop.stop()


class Task:
    """The cleaner or the scrub: a task of the scheduler begins its thread."""

    def __init__(self, place: Path, thread: str) -> None:
        self.clock, self.thread = ManualClock(), thread
        config = BrokerConfig.load(
            overrides=["log.scrub.interval.ms=3600000", "log.initial.task.delay.ms=0"]
        )
        self.tasks = LogTasks(
            LogManager([place], listener=SimpleNamespace()),  # type: ignore[arg-type]
            dict, lambda replica: None, self.clock, lambda: config, lambda names: None,
        )  # fmt: skip
        self.scheduler = Scheduler(self.clock)
        self.tasks.schedule(self.scheduler)

    def use(self) -> None:
        self.clock.advance(TASK_RETRY_MS)
        self.scheduler.run_due()

    def serves(self) -> bool:
        return any(each.name == self.thread and each.is_alive() for each in self.tasks.threads)

    def end(self) -> None:
        self.tasks.stop()


class Move:
    """A client asks again for the move that it has asked for."""

    def __init__(self, place: Path) -> None:
        self.two = Two(place)
        self.two.append(10)

    def use(self) -> None:
        self.two.manager.moves.mover.ask(NAME, str(self.two.second))

    def serves(self) -> bool:
        return self.two.here() == ["second"]

    def end(self) -> None:
        self.two.close()


class Lane:
    """A worker of a data directory; what could not be put is put again."""

    def __init__(self, place: Path) -> None:
        self.done = threading.Event()
        self.lane = ThreadLane(lambda work, late: None, ManualClock())

    def use(self) -> None:
        self.lane.put(Work(self.done.set))

    def serves(self) -> bool:
        return self.done.is_set()

    def end(self) -> None:
        self.lane.stop()


class Assignments:
    """Work for groups of KIP-848: a group that gets an error takes its work for under way."""

    def __init__(self, place: Path) -> None:
        self.done = threading.Event()
        self.beside = Beside()
        self.raised = False

    def use(self) -> None:
        try:
            self.beside.submit(self.done.set)
        except Exception:
            self.raised = True

    def serves(self) -> bool:
        return self.done.is_set() and not self.raised

    def end(self) -> None:
        self.beside.stop()


class Watches:
    """The thread that calls back for the metadata store."""

    def __init__(self, place: Path) -> None:
        self.done = threading.Event()
        self.watches = WatchRegistry()

    def use(self) -> None:
        self.watches.arm("/a", WatchKind.DATA, lambda event: self.done.set(), False)
        self.watches.fire(WatchKind.DATA, "/a", EventType.CHANGED)

    def serves(self) -> bool:
        return self.done.is_set()

    def end(self) -> None:
        self.watches.close()


class Keys:
    """Of tokens: a thread for each time that they are fetched, and a file that is read."""

    def __init__(self, place: Path) -> None:
        path = place / "keys"
        path.write_bytes(key_set(Signer("RS256", "a")))
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.source = JwksSource(path.as_uri(), 10_000, 100, 400)
        self.begun = False

    def use(self) -> None:
        if not self.begun:
            self.begun = True
            self.source.start(self.clock, self.timer.call_later)
        self.clock.advance(JWKS_FETCH_MS_MAX)
        self.timer.advance()
        self.source.missing("a")
        wait_until(lambda: self.source._fetch is None, "it has been read, or has failed")

    def serves(self) -> bool:
        return self.source.now() is not None

    def end(self) -> None:
        pass


class Handlers:
    """num.io.threads, which `DynamicConfig.try_again` follows again where it has failed."""

    def __init__(self, place: Path) -> None:
        self.rig = contextlib.ExitStack()
        self.pool = self.rig.enter_context(_rig(place)).pool

    def use(self) -> None:
        self.pool.resize(5)

    def serves(self) -> bool:
        return sum(each.is_alive() for each in self.pool.threads) == 5

    def end(self) -> None:
        self.rig.close()


@contextlib.contextmanager
def _rig(place: Path) -> Iterator[Rig]:
    with running(place) as rig:
        yield rig
        rig.stop()


class LateStep:
    """The loader of a coordinator, begun after the ready line."""

    def __init__(self, place: Path) -> None:
        self.clock = ManualClock()
        self.scheduler = Scheduler(self.clock)
        machine: Any = SimpleNamespace(name="groups", log_lines_max=1)
        table: Any = SimpleNamespace()
        self.loader = Loader(table, machine, self.clock, buffer_bytes=1)
        self.step = LateSteps(self.scheduler).step("groups", self.loader.start, self.loader.stop)
        self.begun = False

    def use(self) -> None:
        if not self.begun:
            self.begun = True
            self.step.start()
        self.clock.advance(TASK_RETRY_MS)
        self.scheduler.run_due()

    def serves(self) -> bool:
        return self.loader.thread.is_alive()

    def end(self) -> None:
        self.step.stop()


class Table:
    """The table of an API, at its first request."""

    def __init__(self, place: Path) -> None:
        self.done = False

    def use(self) -> None:
        request = messages.list_partition_reassignments.Request(timeout_ms=1, topics=None)
        self.done = len(request.encode(0)) > 0

    def serves(self) -> bool:
        return self.done

    def end(self) -> None:
        pass


class ShareFetches:
    """What serves share fetches, at the first of them."""

    def __init__(self, place: Path) -> None:
        clock: Clock = ManualClock()
        nothing: Any = SimpleNamespace(call_soon=None, await_records=None, await_end=None)
        self.service = ShareServiceOnDemand(
            lambda: nothing, clock, Timer(clock), nothing, lambda: nothing, lambda: nothing,
            Failures("share"), Purgatory("ShareFetch", Timer(clock)),
        )  # fmt: skip
        self.service._hot_shares = lambda: nothing  # type: ignore[method-assign]

    def use(self) -> None:
        self.service.get()

    def serves(self) -> bool:
        return self.service.made is not None

    def end(self) -> None:
        pass


UPKEEP: Final = "kbroker.log.upkeep"
STARTS: Final[dict[str, Start]] = {
    "control loop": Start(OnTheLoop, (*IMPORTS, THREAD), ("kbroker.peer.control_loop",)),
    "log cleaner": Start(
        lambda place: Task(place, "kbroker-log-cleaner-0"),
        (*IMPORTS, THREAD),
        (f"{UPKEEP}.cleaner",),
    ),
    "scrub": Start(
        lambda place: Task(place, "kbroker-log-scrub"), (*IMPORTS, THREAD), (f"{UPKEEP}.scrubber",)
    ),
    "mover": Start(Move, (*IMPORTS, THREAD), (f"{UPKEEP}.mover",)),
    "lane of a data directory": Start(Lane, THREADS),
    "assignments": Start(Assignments, THREADS),
    "watches of the metadata store": Start(Watches, THREADS),
    "keys of tokens": Start(Keys, (DESCRIPTORS, *THREADS)),
    "request handlers": Start(Handlers, THREADS),
    "loader of a coordinator": Start(LateStep, THREADS),
    "table of an API": Start(
        Table, IMPORTS, (f"{messages.__name__}.list_partition_reassignments",)
    ),
    "share fetches": Start(ShareFetches, IMPORTS, ("kbroker.engine.share.service",)),
}


class _Finder:
    """The first that is asked for a module; refuses some."""

    def __init__(self, refused: tuple[str, ...], error: BaseException) -> None:
        self._refused, self._error = refused, error

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self._refused:
            raise self._error


@contextlib.contextmanager
def shortage(lacking: str, modules: tuple[str, ...]) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pytest.MonkeyPatch.context() as patch:
        match lacking:
            case "no descriptors":
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            case "no thread":
                patch.setattr(threading, "_start_new_thread", _raises(RuntimeError("can't start")))
            case "no memory":
                patch.setattr(threading, "_start_new_thread", _raises(MemoryError()))
                patch.setattr(sys, "meta_path", [_Finder(modules, MemoryError()), *sys.meta_path])
            case "no import":
                error = ImportError("no such file")
                patch.setattr(sys, "meta_path", [_Finder(modules, error), *sys.meta_path])
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _raises(error: BaseException) -> Callable[..., None]:
    def fail(*given: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("name", "lacking"),
    [(name, lacking) for name, start in STARTS.items() for lacking in start.short_of],
)
def test_it_starts_when_there_is_enough_again(
    name: str, lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = STARTS[name]
    case = start.make(tmp_path)
    for module in start.modules:  # it may have been imported by another test
        parent, _, leaf = module.rpartition(".")
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.delitem(vars(import_module(parent)), leaf, raising=False)
    try:
        with shortage(lacking, start.modules):
            for _ in range(2):
                with contextlib.suppress(Exception):
                    case.use()
            assert not case.serves()
        wait_until(lambda: _used(case).serves(), f"{name}: it serves again")
    finally:
        case.end()


def _used(case: Case) -> Case:
    case.use()
    return case


# Modules with threads that no case above starts, and the outcome where one cannot start.
ELSEWHERE: Final = {
    # Before the ready line: the start ends, with a line.
    "kbroker/metadata/controller/event_loop.py",
    "kbroker/purgatory/timer.py",
    "kbroker/scheduler.py",
    "kbroker/security/audit.py",
    "kbroker/server/admin_port.py",
    "kbroker/log/opening/recovery.py",
    "kbroker/log/opening/data_directory.py",
    # After it: a late step (`LateSteps`).
    "kbroker/observe/metrics_topic.py",
    # `close` does it too, when there is another session.
    "kbroker/metadata/store/zookeeper.py",
    # Of a command.
    "kbroker/backup/files.py",
    # With a visit, and again with the next one.
    "kbroker/admin/console_mount.py",
    "kbroker/console/worker.py",
}
STARTED_HERE: Final = {
    "kbroker/coordinator/consumer_group/beside.py",
    "kbroker/coordinator/runtime/loader.py",
    "kbroker/log/upkeep/cleaner.py",
    "kbroker/log/upkeep/lane.py",
    "kbroker/log/upkeep/mover.py",
    "kbroker/log/upkeep/scrubber.py",
    "kbroker/metadata/store/watches.py",
    "kbroker/peer/control_loop.py",
    "kbroker/security/jwks_source.py",
    "kbroker/server/handler_pool.py",
}
THREAD_CLASS: Final = re.compile(r"(?:OwnThread|threading\.Thread|ThreadPoolExecutor)\(\s*(?!\))")


def test_every_thread_is_started_by_a_case_or_in_the_list_of_the_others() -> None:
    found = {
        relative(path)
        for path in source_files("kbroker", suffixes=(".py",))
        if THREAD_CLASS.search(path.read_text("utf-8"))
        and not relative(path).startswith(("kbroker/testing/", "kbroker/cli/"))
    }
    assert found - {"kbroker/own_thread.py"} == STARTED_HERE | ELSEWHERE
