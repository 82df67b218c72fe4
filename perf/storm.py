"""The reconnect storm: 10,000 clients with TLS and SCRAM come at once, beside some that are there.

    python -m perf.storm                      # kbroker and Apache Kafka, three storms each
    python -m perf.storm --brokers kbroker --clients 1000 --storms 1 --json FILE

Each broker starts for this measurement alone and has a few clients that go on with small requests
(`perf.steady`). Then all clients of `perf.storm_clients` connect at once; when the last one is in
they leave, and come once more: the first storm finds a JVM that has compiled nothing, the later
ones are compared. Measured: the time until the last client is in, CPU of the broker, and the p99 of
those that were there, before the storm and in it. Brokers have their turns; the one that has none
is held still. Both have their defaults but for listeners, certificate and users.

The load is one thread of this process, whose own CPU is printed: where it is near the time of the
storm, the broker was not the slower one. The machine has to be quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from lab.ports import free_port
from perf.brokers import Broker, KafkaBroker
from perf.machine import machine_line, version_line
from perf.process import Watch, cpu_ns, memory
from perf.storm_clients import MECHANISM, PASSWORD, USER, Storm, keep_salted_passwords
from perf.tls_cost import TwoListeners, make_certificate

LISTENER: Final = "SASL_SSL"
STEADY_CLIENTS: Final = 10
STEADY_PERIOD_MS: Final = 100
BEFORE_S: Final = 5.0
GIVE_UP_S: Final = 600.0
STORMS: Final = 3
BAR: Final = 0.7
BAR_P99: Final = 2.0
FIRST_USER: Final = ("--add-scram", f"{MECHANISM}=[name={USER},password={PASSWORD}]")
_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@dataclass(frozen=True)
class Measured:
    """One storm. `p99_before_ms`, `p99_ms`: of those that were there."""

    broker: str
    storm: int
    clients: int
    took_s: float
    attempts: int
    broker_cpu_s: float
    own_cpu_s: float
    p99_before_ms: float
    p99_ms: float
    resident_mb: float
    beside: float
    failures: dict[str, int]


class Kbroker(TwoListeners):
    """With a user of SCRAM from its beginning."""

    def command(self) -> list[str]:
        return [*super().command(), *FIRST_USER]


def settings(store: Path) -> tuple[str, ...]:
    prefix = f"listener.name.{LISTENER.lower()}"
    return (
        f"{prefix}.ssl.keystore.type=PEM",
        f"{prefix}.ssl.keystore.location={store}",
        f"{prefix}.sasl.enabled.mechanisms={MECHANISM}",
        f"{prefix}.{MECHANISM.lower()}.sasl.jaas.config={_LOGIN}",
    )


def made(name: str, directory: Path, store: Path) -> tuple[Broker, int]:
    """A broker that is not started, and its port with TLS."""
    port, secure = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},{LISTENER}://127.0.0.1:{secure}"
    common = (f"advertised.listeners={listeners}", *settings(store))
    if name == "kbroker":
        return Kbroker(directory / name, port, (f"listeners={listeners}", *common)), secure
    theirs = KafkaBroker(directory / name, port)
    theirs.format_arguments = FIRST_USER
    controller = f"CONTROLLER://127.0.0.1:{theirs.controller_port}"
    protocols = f"PLAINTEXT:PLAINTEXT,{LISTENER}:{LISTENER},CONTROLLER:PLAINTEXT"
    theirs.override(
        f"listeners={listeners},{controller}", *common,
        f"listener.security.protocol.map={protocols}",
    )  # fmt: skip
    return theirs, secure


@contextmanager
def steady(port: int, certificates: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "perf.steady", str(port), str(certificates)]
    words += [str(STEADY_CLIENTS), str(STEADY_PERIOD_MS)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RuntimeError("the clients that were to be there are not")
        yield process
    finally:
        process.kill()
        process.wait()


def percentile_ms(found: Sequence[tuple[int, int]], from_ns: int, until_ns: int) -> float:
    """The 99th of the requests that were sent in that time."""
    taken = sorted(took for sent, took in found if from_ns <= sent < until_ns)
    if not taken:
        raise ValueError("nothing was sent in that time")
    return taken[min(len(taken) - 1, len(taken) * 99 // 100)] / 1e6


def storm(broker: Broker, port: int, certificates: Path, number: int, count: int) -> Measured:
    context = ssl.create_default_context(cafile=str(certificates))
    pid = broker.measured_pid
    with steady(port, certificates) as process:
        before_ns = time.monotonic_ns()
        time.sleep(BEFORE_S)
        clients = Storm(("127.0.0.1", port), context, count, lambda line: print(line, flush=True))
        watch, cpu, own = Watch([pid, os.getpid(), process.pid]), cpu_ns(pid), cpu_ns(os.getpid())
        began_ns = time.monotonic_ns()
        try:
            took_s = clients.run(GIVE_UP_S)
            ended_ns = time.monotonic_ns()
            spent, own_spent = cpu_ns(pid) - cpu, cpu_ns(os.getpid()) - own
            guard, resident = watch.guard(), memory(pid).resident
            output, _ = process.communicate(timeout=60)
        finally:
            clients.close()
        found = json.loads(output)
    return Measured(
        broker.name, number, count, took_s, clients.attempts, spent / 1e9, own_spent / 1e9,
        percentile_ms(found, before_ns, began_ns), percentile_ms(found, began_ns, ended_ns),
        resident / 1e6, guard.others + guard.steal, clients.failures,
    )  # fmt: skip


def storms(names: Sequence[str], count: int, times: int) -> Iterator[Measured]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="storm-")))
        make_certificate(directory)
        sides = []
        for name in names:
            broker, port = made(name, directory, directory / "broker.pem")
            stack.enter_context(broker)
            broker.hold()
            sides.append((broker, port))
        for number in range(times):
            for broker, port in sides:
                broker.resume()
                yield storm(broker, port, directory / "chain.pem", number, count)
                time.sleep(BEFORE_S)  # the broker learns that they are gone
                broker.hold()


def line(each: Measured) -> str:
    failures = ", ".join(f"{why} {n}" for why, n in sorted(each.failures.items())) or "none"
    return (
        f"{each.broker:<8} storm {each.storm}: {each.clients} clients in {each.took_s:.1f} s,"
        f" {each.attempts} connections; CPU {each.broker_cpu_s:.1f} s, of the load"
        f" {each.own_cpu_s:.1f} s; p99 of others {each.p99_before_ms:.1f} -> {each.p99_ms:.1f} ms;"
        f" {each.resident_mb:.0f} MB; beside {each.beside:.0%}; failures: {failures}"
    )


def verdict(all_of_them: Sequence[Measured]) -> list[str]:
    """By storms after the first one, whose JVM had compiled nothing."""
    warm = [each for each in all_of_them if each.storm > 0]
    took = {
        name: statistics.median(each.took_s for each in warm if each.broker == name)
        for name in {each.broker for each in warm}
    }
    lines = []
    if {"kbroker", "kafka"} <= took.keys():
        ratio = took["kbroker"] / took["kafka"]
        lines.append(f"time, kbroker / Apache Kafka: {ratio:.2f} (bar {BAR})")
    for name in sorted(took):
        of_it = [each for each in warm if each.broker == name]
        more = statistics.median(each.p99_ms / each.p99_before_ms for each in of_it)
        lines.append(f"{name}: p99 of those that are there x {more:.1f} (bar {BAR_P99})")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.storm", description=__doc__)
    parser.add_argument("--brokers", default="kbroker,kafka")
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--storms", type=int, default=STORMS)
    parser.add_argument("--json", type=Path, help="where all storms are written")
    options = parser.parse_args(arguments)
    keep_salted_passwords()
    found = []
    for each in storms(options.brokers.split(","), options.clients, options.storms):
        found.append(each)
        print(line(each), flush=True)
    print(machine_line())
    print(version_line())
    print("\n".join(verdict(found)))
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1))


if __name__ == "__main__":
    main()
