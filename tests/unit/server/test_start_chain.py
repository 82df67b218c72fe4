"""What each step of a start brings, and the way back.

A broker in this process is started on the directories of an earlier one, with one more. After every
step all signs are looked at: each shows from its own step on and not before, so none is done too
early by another one, and the order is the one in which the signs are listed.
"""

from __future__ import annotations

import errno
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from kbroker.cli.start import serve_admin
from kbroker.config import BrokerConfig
from kbroker.metadata.controller import NewTopic
from kbroker.server.broker import Broker
from kbroker.server.lifecycle import Lifecycle, Step
from kbroker.testing.inspection import wait_until
from tests.unit.server.test_failed_start import ask

Sign = Callable[[Broker], bool]
LIMIT = 600
MOMENT_S = 0.05  # for an answer that may come
PATIENCE_S = 30.0  # for one that must


@pytest.fixture(autouse=True)
def limit_of_open_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def reaches(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


def answers(broker: Broker, within_s: float = MOMENT_S) -> bool:
    """Whether ApiVersions has an answer; a broker without network threads lets it wait."""
    with socket.create_connection(broker.bootstrap, timeout=PATIENCE_S) as client:
        client.settimeout(within_s)
        request = struct.pack(">hhih", 18, 0, 7, -1)
        try:
            client.sendall(struct.pack(">i", len(request)) + request)
            return len(client.recv(8)) == 8
        except OSError:
            return False


def in_directory(broker: Broker, number: int, name: str) -> bool:
    return Path(broker.config.log_dirs[number], name).exists()


def bound(broker: Broker) -> bool:
    return bool(broker._bound) and reaches("{}:{}".format(*broker.bootstrap))


IN_ORDER = "end-in-order"  # made where a signal would be noticed
# By step, in their order: how to see that it has been gone.
SIGNS: dict[str, Sign] = {
    "open-file limit": lambda b: resource.getrlimit(resource.RLIMIT_NOFILE)[0] > LIMIT,
    "cluster identity": lambda b: b._cluster_id is not None,
    "metadata store": lambda b: b._store is not None,
    "listeners": bound,
    "timer": lambda b: b._timer.thread.is_alive(),
    "admin port": lambda b: bool(b._admin.threads),
    "end in order": lambda b: in_directory(b, 0, IN_ORDER),
    "logs": lambda b: not in_directory(b, 0, ".kafka_cleanshutdown"),
    "controller": lambda b: b._replicas.partition("t", 0) is not None,
    "data directories": lambda b: in_directory(b, 1, "meta.properties"),
    "request handlers": lambda b: b._handlers is not None and b._handlers.threads[0].is_alive(),
    "network threads": lambda b: bound(b) and answers(b),
    "scheduler": lambda b: b._scheduler.thread.is_alive(),
    "ready file": lambda b: b._ready_file is not None and b._ready_file.exists(),
    "groups": lambda b: b._groups.loader.thread.is_alive(),
    "transactions": lambda b: b._transactions._is_started,
    "share groups": lambda b: b._share._is_started,
    "observer": lambda b: "observer" in b._scheduler.statistics(),
    "warm-up": lambda b: b._loop.thread is not None,
    "metrics topic": lambda b: b.observation.metrics_thread is not None,
}
# An answer takes an acceptor, a network thread and a handler: after its step it is waited for.
WAITED_FOR: dict[str, Sign] = {"network threads": lambda b: answers(b, PATIENCE_S)}
ONLY_STOPS = {"control loop", "readiness"}
IN_A_CLUSTER = {"first image", "leadership"}
CONFIGURED = {"authorizer"}  # there is none by default


def make(data: Path, *directories: str) -> Broker:
    values = [
        f"log.dirs={','.join(str(data / name) for name in directories)}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "admin.listeners=http://127.0.0.1:0",
        "metrics.topic.enable=true",
    ]
    config = BrokerConfig.load(None, {}, values)
    one = data / "one"
    in_order = (one / IN_ORDER).touch
    return Broker(config, one, data / "ready.json", serve_admin, before_logs=in_order)


def left_by_another(data: Path) -> None:
    broker = make(data, "one")
    broker.start()
    assert broker._controller is not None
    controller = broker._controller
    ask(lambda done: controller.create_topics([NewTopic("t", 1, 1)], False, done))
    assert broker.stop()


def test_each_step_brings_the_part_that_it_is_named_for(tmp_path: Path) -> None:
    left_by_another(tmp_path)
    (tmp_path / "one" / IN_ORDER).unlink()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, hard))  # the other one has raised it
    broker = make(tmp_path, "one", "two")
    seen: dict[str, str] = {}  # a sign, and the step after which it was seen first
    stopped: list[str] = []

    def watched(step: Step) -> Step:
        def start() -> None:
            step.start()
            for sign, shows in SIGNS.items():
                look = WAITED_FOR.get(sign, shows) if sign == step.name else shows
                if sign not in seen and look(broker):
                    seen[sign] = step.name

        def stop() -> None:
            stopped.append(step.name)
            step.stop()

        return replace(step, start=start, stop=stop)

    steps = broker._lifecycle._steps
    unsigned = ONLY_STOPS | IN_A_CLUSTER | CONFIGURED
    assert [step.name for step in steps if step.name not in unsigned] == list(SIGNS)
    broker._lifecycle = Lifecycle([watched(step) for step in steps])
    broker.start()
    assert broker.stop()
    assert seen == {sign: sign for sign in SIGNS}
    assert stopped == [step.name for step in reversed(steps)]


def test_a_shortage_after_the_ready_line_does_not_end_a_broker_that_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = OSError(errno.EMFILE, "Too many open files")
    monkeypatch.setattr(Broker, "_warm_up", Mock(side_effect=[short, None]))
    broker = make(tmp_path, "one")
    assert broker.start()
    assert answers(broker, PATIENCE_S)
    (check,) = [each for each in broker.readiness.checks() if not each.ok]
    assert "start of warm-up" in check.name and "Too many open files" in check.detail
    broker._scheduler.trigger("start of warm-up")
    wait_until(lambda: all(each.ok for each in broker.readiness.checks()), "it works then")
    assert broker.stop()


def test_a_stop_takes_back_the_started_parts(tmp_path: Path) -> None:
    broker = make(tmp_path, "one")
    broker.start()
    assert answers(broker, PATIENCE_S)
    threads = [thread for thread in broker._own_threads() if thread is not None]
    assert len(threads) > 5
    assert broker.stop()
    assert not [thread.name for thread in threads if thread.is_alive()]
    assert not SIGNS["ready file"](broker) and not bound(broker)
    assert not SIGNS["logs"](broker)  # marked as cleanly closed
