"""The agents' programs: what each needs, how it is built, how it is run.

Go, Node, Rust and Java programs are built once into the cache directory outside the work tree
(KBROKER_CACHE), under a name that holds a hash of their sources and pins: `build` makes what is
missing, a change of a source makes another. Packages come from each language's registry by name,
at the versions that go.sum, package-lock.json and Cargo.lock pin. Tests never build: they skip
where a program is missing, and `python -m tests.support.setup` builds.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lab.jars import KAFKA, cache_directory
from tests.clients.agents.driver import Agent
from tests.support import kafka_classes, requirements

SOURCES = Path(__file__).resolve().parent.parent / "programs"
ROOT = SOURCES.parents[2]
BUILD_TIMEOUT_S = 1200
KEPT_S = 30 * 24 * 3600

EAGER = ("range", "roundrobin", "sticky")
ALL = (*EAGER, "cooperative-sticky")


class Library(NamedTuple):
    name: str
    language: str
    strategies: tuple[str, ...]  # by their names in JoinGroup
    seeks: bool = True  # inside a group
    sticks: bool = True  # its eager sticky assignor leaves partitions where they are
    transactions: bool = False
    process_each: bool = False  # its assignor keeps a member's state in the process


LIBRARIES = (
    Library(
        "confluent-kafka",
        "python",
        ("range", "roundrobin", "cooperative-sticky"),
        transactions=True,
    ),
    Library("kafka-python", "python", ALL, transactions=True),
    Library("aiokafka", "python", EAGER, transactions=True, process_each=True),
    Library("java", "java", ALL, transactions=True),
    Library("franz-go", "go", ALL, sticks=False, transactions=True),  # as on Apache Kafka
    Library("sarama", "go", EAGER, seeks=False, transactions=True),
    Library("kafkajs", "node", ("RoundRobinAssigner",), transactions=True),
    Library("rust-rdkafka", "rust", ("range", "roundrobin", "cooperative-sticky")),
)


class Language(NamedTuple):
    tools: tuple[str, ...]
    build: Callable[[Path, Path], None]  # sources, directory to fill


def _run(command: list[str], cwd: Path, **env: str) -> None:
    ran = subprocess.run(command, cwd=cwd, env={**os.environ, **env}, timeout=BUILD_TIMEOUT_S,
                         stdin=subprocess.DEVNULL, capture_output=True, text=True)  # fmt: skip
    if ran.returncode != 0:
        raise OSError(f"{' '.join(command)}: {(ran.stdout + ran.stderr).strip()[-2000:]}")


def _go(sources: Path, made: Path) -> None:
    _run(["go", "build", "-mod=readonly", "-o", str(made / "agent"), "."], sources)


def _rust(sources: Path, made: Path) -> None:
    target = made / "target"
    # librdkafka, in C: nothing is measured with it, and to optimise it takes a third of the time.
    env = {"CARGO_TARGET_DIR": str(target), "CFLAGS": "-O0", "CXXFLAGS": "-O0"}
    # rustup's cargo finds its toolchain by HOME, which need not be the one it was installed under.
    installed = Path(shutil.which("cargo") or "").parents[1].parent / ".rustup"
    if installed.is_dir():
        env.setdefault("RUSTUP_HOME", os.environ.get("RUSTUP_HOME", str(installed)))
    _run(["cargo", "build", "--quiet", "--locked"], sources, **env)
    shutil.copy2(target / "debug" / "agent", made / "agent")
    shutil.rmtree(target)


def _node(sources: Path, made: Path) -> None:
    for source in sources.iterdir():
        if source.is_file():
            shutil.copy2(source, made)
    _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"], made)


def _java(sources: Path, made: Path) -> None:
    files = [str(source) for source in sources.glob("*.java")]
    _run(["javac", "-cp", KAFKA.class_path, "-d", str(made), *files], sources)


LANGUAGES: Mapping[str, Language] = {
    "go": Language(("go",), _go),
    "node": Language(("node", "npm"), _node),
    "rust": Language(("cargo", "make", "g++"), _rust),
    "java": Language(("javac", "java"), _java),
}


def _built(language: str) -> Path:
    """Where the program of these very sources is, or would be."""
    digest = hashlib.sha256()
    for source in sorted((SOURCES / language).rglob("*")):
        if source.is_file() and "node_modules" not in source.parts:
            digest.update(f"{source.relative_to(SOURCES)}\0".encode() + source.read_bytes())
    return cache_directory() / "agents" / f"{language}-{digest.hexdigest()[:16]}"


def build(language: str) -> Path:
    """The program's directory; OSError or SubprocessError says what is missing or went wrong."""
    made = _built(language)
    if made.exists():
        return made
    missing = [tool for tool in LANGUAGES[language].tools if shutil.which(tool) is None]
    if missing:
        raise OSError(f"no {' or '.join(missing)} on this machine")
    unfinished = made.with_suffix(f".{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        LANGUAGES[language].build(SOURCES / language, unfinished)
        unfinished.rename(made)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    _forget_old(language)
    return made


def _forget_old(language: str) -> None:
    """Other work trees may use other programs: only what is a month old goes."""
    for older in (cache_directory() / "agents").glob(f"{language}-*"):
        if time.time() - older.stat().st_mtime > KEPT_S:
            shutil.rmtree(older, ignore_errors=True)


def program(language: str) -> Path:
    made = _built(language)
    if not made.exists():
        requirements.skip_missing(
            f"the {language} clients' program", f"`make setup` builds it into {made}"
        )
    return made


def _command(library: Library, bootstrap: str) -> list[str]:
    if library.language == "python":
        return [sys.executable, "-m", "tests.clients.agents.python", library.name, bootstrap]
    if library.language == "java":
        return kafka_classes.command("Agent", bootstrap, classes=program("java"))
    if library.language == "node":
        return [requirements.program("node", "install Node.js"),
                str(program("node") / "agent.js"), bootstrap]  # fmt: skip
    return [str(program(library.language) / "agent"), library.name, bootstrap]


def agent(library: Library, bootstrap: str, log: Any) -> Agent:
    """A running program of that library; log is a file for its prints beside its answers."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    return Agent(library.name, _command(library, bootstrap), env, log)
