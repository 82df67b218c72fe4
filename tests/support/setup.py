"""Fetch what the client tests need and the machine lacks: `python -m tests.support.setup`.

Brings kcat, strace, systemd, runc, Chromium and promtool (apt-get, where this process may), Apache
Kafka's jars, ZooKeeper's and those of Spark's connector (Maven), and builds the client programs in
Go, Rust, JavaScript and Java from their registries (tests/clients/agents/programs.py). Says in one
line each what is there and what is not, and exits 0 in any case: the tests that miss something name
it themselves, and KBROKER_REQUIRE=all makes them fail. What comes from different places comes at
the same time: packages, Maven's jars, each language's registry. dpkg and Maven's cache bear one at
a time, so those steps follow each other.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from kbroker.errors import UserError
from kbroker.testing import BrokerFailed
from lab.jars import KAFKA, ZOOKEEPER, Jars, JarsMissing
from spark_jobs import connector
from tests.clients.agents import programs
from tests.support import browser, jars, kafka_classes, promtool, spark_classes

APT_TIMEOUT_S = 300


def main() -> None:
    with ThreadPoolExecutor(len(LANES)) as pool:
        for done in [pool.submit(_bring, steps) for steps in LANES]:
            done.result()


def _bring(steps: Sequence[Step]) -> None:
    for part, bring in steps:
        print(f"set-up: {part}: {bring()}", flush=True)


def _package(name: str, program: str = "") -> str:
    """A program that a package of the distribution brings, by default one of the same name."""
    program = program or name
    if shutil.which(program) is None:
        if shutil.which("apt-get") is None:
            return "missing, and there is no apt-get to install it with"
        if os.geteuid() != 0:
            return f"missing; install it with `sudo apt-get install {name}`"
        for step in (["update"], ["install", "--yes", "--no-install-recommends", name]):
            try:
                subprocess.run(
                    ["apt-get", "-qq", *step],
                    check=True,
                    timeout=APT_TIMEOUT_S,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                )
            except subprocess.CalledProcessError as error:
                return f"missing, and installing it failed: {error.stderr.strip()}"
            except (subprocess.SubprocessError, OSError) as error:
                return f"missing, and installing it failed: {error}"
    return str(shutil.which(program))


def _jars(wanted: Jars) -> str:
    try:
        wanted.fetch()
    except JarsMissing as error:
        return str(error)
    return str(wanted.directory)


def _spark() -> str:
    try:
        return str(connector.fetch()[0].parent)
    except UserError as error:
        return f"missing: {error.cause}"


def _spark_classes() -> str:
    try:
        return str(spark_classes.make())
    except (subprocess.SubprocessError, OSError) as error:
        return f"not there, sessions of Spark start slower: {error}"


def _kafka_classes() -> str:
    if not KAFKA.present() or shutil.which("java") is None:
        return "not there, without Kafka's jars or Java"
    try:
        return str(kafka_classes.make())
    except (BrokerFailed, OSError) as error:
        return f"not there, Apache Kafka starts slower: {error}"


def _program(language: str) -> str:
    try:
        return str(programs.build(language))
    except (subprocess.SubprocessError, OSError) as error:
        return f"missing, and building it failed: {error}"


def _java() -> str:
    return shutil.which("java") or "missing; the Java tests are skipped"


def _promtool() -> str:
    if promtool.find() is None:
        try:
            promtool.fetch()
        except subprocess.CalledProcessError as error:
            return f"missing, and fetching it failed: {error.stderr.strip()}"
        except (subprocess.SubprocessError, OSError) as error:
            return f"missing, and fetching it failed: {error}"
    return str(promtool.find())


Step = tuple[str, Callable[[], str]]


def _client(language: str) -> Step:
    return f"clients in {language}", functools.partial(_program, language)


LANES: tuple[tuple[Step, ...], ...] = (
    (
        ("kcat", functools.partial(_package, "kcat")),
        ("strace", functools.partial(_package, "strace")),
        ("systemd", functools.partial(_package, "systemd", "systemd-analyze")),
        ("runc", functools.partial(_package, "runc")),
        ("chromium", functools.partial(_package, browser.PACKAGE)),
        ("promtool", _promtool),
    ),
    (
        ("java", _java),
        ("Kafka's jars", functools.partial(_jars, KAFKA)),
        ("streams' jars", functools.partial(_jars, jars.STREAMS)),
        ("ZooKeeper's jars", functools.partial(_jars, ZOOKEEPER)),
        ("Apache Kafka 3.9's jars", functools.partial(_jars, jars.OLD_KAFKA)),
        ("Spark's connector", _spark),
        ("Kafka's classes", _kafka_classes),
        _client("java"),  # compiled against Kafka's jars
        ("Spark's classes", _spark_classes),
    ),
    (_client("rust"),),
    (_client("go"), _client("node")),
)


if __name__ == "__main__":
    main()
