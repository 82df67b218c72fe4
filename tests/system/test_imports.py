"""The broker process stays light: what it must never load, seen from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.testing.plain import PlainBroker as Broker
from tests.clients.adapters import CLIENTS, CODECS, Admin, Record
from tests.support.certificates import Authority
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


_SHOWS_TLS = """
import sys
from kbroker.cli.main import main
from kbroker.server.broker import Broker

def then_shows(step):
    def run(self):
        step(self)
        mapped = "/libssl" in open("/proc/self/maps").read()
        python, ours = "ssl" in sys.modules, "kbroker.net._openssl" in sys.modules
        print("TLS:", mapped, python, ours, flush=True)
    return run

Broker._announce = then_shows(Broker._announce)
Broker._warm_up = then_shows(Broker._warm_up)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("tls", [False, True])
def test_a_broker_without_tls_maps_no_libssl_until_it_is_ready(tmp_path: Path, tls: bool) -> None:
    """After the ready line asyncio imports Python's ssl; nothing of ours binds it."""
    words = ["start", "--port", "0", "--data-dir", str(tmp_path / "data")]
    if tls:
        store = tmp_path / "store.pem"
        store.write_bytes(Authority(tmp_path).issue("broker").both)
        words += ["--override", "listener.security.protocol.map=PLAINTEXT:SSL"]
        words += ["--override", "security.inter.broker.protocol=SSL"]
        words += ["--override", "ssl.keystore.type=PEM"]
        words += ["--override", f"ssl.keystore.location={store}"]
    with subprocess.Popen(
        [sys.executable, "-c", _SHOWS_TLS, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        lines = (line.split()[1:] for line in broker.stdout if line.startswith("TLS:"))
        ready, warm = next(lines), next(lines)
        broker.terminate()
    if tls:
        assert ready[0] == ready[2] == "True"
        return
    assert ready == ["False", "False", "False"]
    assert warm[1:] == ["True", "False"]


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
