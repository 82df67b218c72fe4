"""Unit tests and real clients against wheels that are installed, under any interpreter.

    python -m release.check --python /usr/bin/python3.13 dist/kbroker-*.whl dist/kbroker_perf-*.whl

An environment of its own gets the wheels and what tests need, as pinned. The tests are the work
tree's; its packages come last on the path, so what is imported is what was installed. Below
`tests/unit` only those that hold the tree itself to something are left out. Then a broker is
started from the environment, and records go through it by kbroker's own client and by librdkafka.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from release.stage import ReleaseError, run

TREE: Final = Path(__file__).resolve().parents[1]
# What they read is the sources, or what is built beside them.
_OF_THE_TREE: Final = ("test_faces.py", "test_installed.py", "test_limits.py", "test_tidy.py")
_WHERE: Final = "import kbroker._net, perf._load; print(kbroker._net.__file__, perf._load.__file__)"
_SMOKE: Final = """
import subprocess, sys, time
from kbroker.testing import Broker

with Broker(topics={"t": 3}) as broker:
    lines = "".join(f"{n}\\n" for n in range(20_000))
    kbroker = [sys.executable, "-m", "kbroker"]
    subprocess.run([*kbroker, "produce", "t", "-b", broker.bootstrap], input=lines, text=True,
                   check=True, timeout=60)
    got = subprocess.run([*kbroker, "consume", "t", "-b", broker.bootstrap, "-e", "-f", "%s\\n"],
                         capture_output=True, text=True, check=True, timeout=60).stdout
    assert sorted(map(int, got.split())) == list(range(20_000)), len(got)
    try:
        from confluent_kafka import Consumer, Producer
    except ImportError:
        print("kbroker's own client; there is no librdkafka for this interpreter")
        sys.exit()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec})
        for n in range(1000):
            producer.produce("t", str(n))
        producer.flush()
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **group})
    consumer.subscribe(["t"])
    seen = 0
    end = time.monotonic() + 60
    while seen < 25_000 and time.monotonic() < end:
        seen += len(consumer.consume(1000, timeout=1))
    consumer.close()
    assert seen == 25_000, seen
    print("kbroker's own client and librdkafka")
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m release.check", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter")
    parser.add_argument("--venv", type=Path, default=TREE / "build/wheel-check")
    parser.add_argument("--tests", nargs="+", default=["tests/unit"])
    parser.add_argument("wheels", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    try:
        check(options.python, options.venv.resolve(), options.wheels, options.tests)
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def check(python: str, venv: Path, wheels: list[Path], tests: list[str]) -> None:
    """ReleaseError: something failed."""
    run([python, "-m", "venv", "--without-pip", "--clear", str(venv)], cwd=TREE)
    inside = str(venv / "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", inside, "install", "--quiet",
           "--disable-pip-version-check", "-c", str(TREE / "constraints.txt")]  # fmt: skip
    run([*pip, *map(str, wheels), *_test_packages()], cwd=TREE)
    environment = {"PYTHONSAFEPATH": "1"}
    where = run([inside, "-c", _WHERE], cwd=TREE, environment=environment)
    if where.count(str(venv)) != 2:
        raise ReleaseError(f"what is imported is not what was installed: {where}")
    print(run([inside, "-VV"], cwd=TREE), run([inside, "-c", _SMOKE], cwd=venv), flush=True)
    words = [inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=append", *tests]
    words += [f"--ignore-glob=*/{name}" for name in _OF_THE_TREE]
    if subprocess.run(words, cwd=TREE, env={**os.environ, **environment}, check=False).returncode:
        raise ReleaseError("unit tests fail with the installed wheels")


def _test_packages() -> list[str]:
    project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    packages: list[str] = project["optional-dependencies"]["test"]
    return packages


if __name__ == "__main__":
    sys.exit(main())
