"""The broker process stays light: what it must never load, seen from outside."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kbroker.testing.plain import PlainBroker as Broker
from tests.clients.adapters import CLIENTS, CODECS, Admin, Record
from tests.support.source_tree import ROOT
from tests.system import process_facts

pytestmark = pytest.mark.client


def maps_of(program: str) -> set[str]:
    """The files that a fresh interpreter maps after running a line."""
    script = f"{program}; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        mapped = process_facts.mapped_files(process.pid)
        process.stdin.close()
        process.wait(60)
    return mapped


def of_numpy(mapped: set[str]) -> set[str]:
    return {path for path in mapped if "/numpy" in path}


def test_numpy_would_be_seen() -> None:
    assert of_numpy(maps_of("import numpy"))
    assert not of_numpy(maps_of("pass"))


def test_the_broker_never_loads_numpy(broker: Broker) -> None:
    """Not at start, and not for any API that the clients use."""
    admin = Admin(broker.bootstrap)
    admin.create("t", 2)
    for client in CLIENTS:
        for codec in CODECS:
            deliveries = client(broker.bootstrap).produce("t", [Record(b"x" * 500)] * 20,
                                                          codec=codec)  # fmt: skip
            list(client(broker.bootstrap).consume("t", 1, offset=deliveries[0].offset))
    admin.delete("t")
    mapped = process_facts.mapped_files(broker.pid)
    assert any("/kbroker/" in path for path in mapped)  # it is the right process
    assert not of_numpy(mapped)


def test_kio_where_hypothesis_is_installed_is_none_the_heavier() -> None:
    """kio would make strategies of its types: seconds of CPU and 200 MB."""
    script = """
import sys
from tests.support import schemas
schemas.load()
assert not [name for name in sys.modules if name.partition(".")[0] == "hypothesis"]
import hypothesis
assert hypothesis.given
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)
