"""The image: what `make image` makes starts, serves and stops under `runc`.

It is made of the modules that all other tests run, for this machine alone. Needs root for
namespaces, and apt's sources of Debian.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest

from lab.ports import free_port
from release import image, oci
from release.stage import ReleaseError
from tests.clients.adapters import Confluent, Record
from tests.clients.agents.driver import eventually as until
from tests.support import requirements
from tests.support.container import Container, owned, runc
from tests.support.read_topic import read_topic

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(300)]

HERE = os.uname().machine
MEMORY_BYTES = 256 << 20


class Made(NamedTuple):
    layout: Path
    size: int
    root: Path
    config: dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    runc()
    if os.geteuid() != 0:
        requirements.skip_on_this_machine("namespaces need root")
    if HERE not in oci.PLATFORMS:
        requirements.skip_on_this_machine(f"there is no image for {HERE}")
    to = tmp_path_factory.mktemp("image")
    try:
        sizes = image.build(image.wheel_here(), to)
    except ReleaseError as error:
        if "apt" in str(error):
            requirements.skip_missing("packages of Debian", str(error).splitlines()[0])
        raise
    layout = to / "kbroker-image"
    config = oci.unpacked(layout, oci.PLATFORMS[HERE], to / "root")
    return Made(layout, sizes[HERE], to / "root", config)


class Running(NamedTuple):
    container: Container
    bootstrap: str
    admin: str


@pytest.fixture
def broker(made: Made, tmp_path: Path) -> Iterator[Running]:
    port, admin = free_port(), f"127.0.0.1:{free_port()}"
    variables = {
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "KAFKA_NUM_PARTITIONS": "3",
        "KBROKER_ADMIN_LISTENERS": f"http://{admin}",
        "KBROKER_BOOTSTRAP": f"127.0.0.1:{port}",
    }
    container = Container(
        made.root, made.config, tmp_path / "bundle", environment=variables,
        mounts={"/var/lib/kbroker": owned(tmp_path / "data")}, memory_bytes=MEMORY_BYTES,
    )  # fmt: skip
    with container:
        until(lambda: "started (kbroker)" in container.log(), "it starts", 30)
        yield Running(container, f"127.0.0.1:{port}", admin)


def test_its_size_and_its_words(made: Made) -> None:
    assert made.size <= image.MB_MAX * 1_000_000
    config = made.config["config"]
    assert config["User"] == "1000:1000" and config["Cmd"] == ["start"]
    assert (made.root / "var/lib/kbroker").stat().st_mode & 0o777 == 0o770
    assert (made.root / "var/lib/kbroker").stat().st_gid == 0
    assert "bookworm" in (made.root / "etc/os-release").read_text()
    assert not (made.root / "bin/sh").exists()


def test_every_module_of_it_is_imported(made: Made, tmp_path: Path) -> None:
    """What a part of the standard library that was left out would break."""
    walk = (
        "import kbroker, pkgutil, importlib\n"
        "for each in pkgutil.walk_packages(kbroker.__path__, 'kbroker.'):\n"
        "    if each.name not in ('kbroker.__main__',): importlib.import_module(each.name)\n"
        "import cramjam, kazoo.client, prometheus_client, puresasl, ssl\n"
        "import starlette.applications, uvicorn, uvloop\n"
        "print('all of them')"
    )
    config = {"config": {**made.config["config"], "Entrypoint": ["/usr/bin/python3", "-I"]}}
    with Container(made.root, config, tmp_path / "bundle", "-c", walk) as container:
        assert container.wait() == 0, container.log()
        assert "all of them" in container.log()


def test_every_program_of_it_finds_its_libraries(made: Made) -> None:
    """By the loader of the image, which would name those that are missing."""
    binaries = [path for path in made.root.rglob("*") if ".so" in path.name and path.is_file()]
    binaries.append(made.root / "usr/bin/python3.11")
    (loader,) = made.root.glob("usr/lib/*-linux-gnu/ld-linux-*.so.*")
    missing = []
    for path in binaries:
        found = subprocess.run(
            [str(loader), "--library-path", str(loader.parent), "--list", str(path)],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        lines = (found.stdout + found.stderr).splitlines()
        missing += [f"{path.name}: {line}" for line in lines if "not found" in line]
    assert missing == []


def test_a_broker_that_clients_use_and_that_stops_cleanly(broker: Running) -> None:
    client = Confluent(broker.bootstrap)
    assert {each.error for each in client.produce("t", [Record(b"x")] * 2_000)} == {0}
    assert len(read_topic(broker.bootstrap, "t")) == 2_000
    for more in ((), ("--here",)):
        healthy = broker.container.run("/usr/bin/kbroker", "health", *more)
        assert healthy.returncode == 0, healthy.stdout + healthy.stderr
    assert f"http://{broker.admin} is ready" in healthy.stdout
    with urlopen(f"http://{broker.admin}/ui/topics", timeout=30) as page:
        assert '/ui/topics/t"' in page.read().decode()
    broker.container.signal(signal.SIGHUP)
    until(lambda: "are read again" in broker.container.log(), "SIGHUP", 10)
    broker.container.signal(signal.SIGTERM)
    assert broker.container.wait() == 0
    assert "stopped" in broker.container.log()
    assert "Read-only file system" not in broker.container.log()


def test_the_rights_of_its_process(broker: Running) -> None:
    lines = Path(f"/proc/{broker.container.pid()}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert status["Uid"].split() == ["1000"] * 4 and status["Gid"].split() == ["1000"] * 4
    assert int(status["CapEff"], 16) == 0 and int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1"


def test_orphans_of_its_other_programs_are_removed(broker: Running) -> None:
    """A shell would leave them to process 1; here Python starts one and ends."""
    words = "import os, sys\nif os.fork() == 0: os.execv('/usr/bin/python3', ['python3', '-c', ''])"
    assert broker.container.run("/usr/bin/python3", "-c", words).returncode == 0
    first = broker.container.pid()

    def children() -> str:
        return Path(f"/proc/{first}/task/{first}/children").read_text()

    until(lambda: children() == "", "no child of process 1 is left", 10)


def test_advice_for_containers_that_cannot_reach_it(made: Made, tmp_path: Path) -> None:
    port = free_port()
    container = Container(
        made.root, made.config, tmp_path / "bundle",
        environment={
            "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{port}",
            "KBROKER_ADMIN_LISTENERS": "none",
        },
        mounts={"/var/lib/kbroker": owned(tmp_path / "data")},
    )  # fmt: skip
    with container:
        until(lambda: "started (kbroker)" in container.log(), "it starts", 30)
        (line,) = [each for each in container.log().splitlines() if "advertised.listeners" in each]
        assert "clients in other containers" in line
        assert f"PLAINTEXT://kbroker:{port}" in line


def test_docker_and_others_find_it(made: Made) -> None:
    """The archive for `docker load`; tests/unit/release reads one in full."""
    (archive,) = made.layout.parent.glob("*.tar")
    assert archive.name == f"kbroker-image-{oci.PLATFORMS[HERE].architecture}.tar"
    with tarfile.open(archive) as opened:
        assert {"manifest.json", "index.json", "oci-layout"} < set(opened.getnames())


def test_a_command_instead_of_a_broker(made: Made, tmp_path: Path) -> None:
    with Container(made.root, made.config, tmp_path / "bundle", "version") as container:
        assert container.wait() == 0
        assert "kbroker" in container.log() and "CPython 3.11" in container.log()
