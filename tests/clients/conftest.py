"""One broker for all client tests, and topics with names of their own in it.

Which broker, by environment:
    (nothing)                              a kbroker in a process of its own
    KBROKER_TEST_REFERENCE=kafka           Apache Kafka in a process of its own
    KBROKER_TEST_BOOTSTRAP=host:port       one that runs already; KBROKER_TEST_DATA_DIR names its
                                           data directory for the tests that look at the files

The suite was checked against Apache Kafka before it was run against kbroker: what it expects is
what the original does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from kbroker.testing import process
from tests.clients import adapters
from tests.clients.agents import programs
from tests.clients.agents.driver import Agent, AgentError
from tests.clients.agents.groups import Groups
from tests.clients.agents.tools import Tools
from tests.support import batches, requirements, servers

MakeTopic = Callable[..., str]
Start = Callable[[programs.Library], Agent]

AGENTS_LOG_CHARACTERS = 20_000
# What says so of waiting in vain: by a word, as "3 of 40 records", or by librdkafka's error codes
# (-185, -192) and Kafka's (7).
WAITED = re.compile(
    r"time[ds]?[ _-]?out|deadline|no answer in|\d+ of \d+ records"
    r"|error codes? \[?(?:[^]]*[ ,])?(?:-192|-185|7)\b",
    re.IGNORECASE,
)
# Scenarios of many processes of other people's clients, which end by an error of their own now and
# then, on Apache Kafka too: once more, and the summary shows what failed the first time. A member
# that waits for ever fails: whose fault that is cannot be known.
WALKS_OF_MANY_CLIENTS = frozenset(
    {"test_matrix", "test_assignments", "test_side_by_side", "test_streams"}
)


def a_clients_own(error: BaseException | None) -> bool:
    """Whether a failure may be the client's: its program said so, and the broker is well. What was
    lost, doubled or answered wrong is an assertion's, and never run again; nor is what waited in
    vain, by its program's word or by ours: a broker that forgets to answer looks like that."""
    if not isinstance(error, AgentError) or WAITED.search(str(error)):
        return False
    return all(
        server.alive and "Traceback" not in server.log_text() for server in process.running()
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    walks = {Path(__file__).with_name(f"{stem}.py") for stem in WALKS_OF_MANY_CLIENTS}
    for item in items:
        if item.path in walks:
            item.add_marker(pytest.mark.flaky(reruns=1, condition=a_clients_own))


# Of Apache Kafka alone: ours has these by itself.
ONE_BROKER = {
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}


class Server(NamedTuple):
    bootstrap: str
    data_dir: Path | None
    kbroker: bool  # so that nothing is forgiven that the original does not manage


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    bootstrap = os.environ.get("KBROKER_TEST_BOOTSTRAP")
    if bootstrap:
        data_dir = os.environ.get("KBROKER_TEST_DATA_DIR")
        yield Server(bootstrap, Path(data_dir) if data_dir else None, False)
        return
    with servers.make(ONE_BROKER if servers.reference() else None) as broker:
        yield Server(broker.bootstrap, broker.data_dir, not servers.reference())
        servers.assert_nothing_unexpected(broker)


@pytest.fixture
def bootstrap(server: Server) -> str:
    return server.bootstrap


@pytest.fixture(scope="session")
def admin(server: Server) -> adapters.Admin:
    return adapters.Admin(server.bootstrap, settle=not server.kbroker)


@pytest.fixture
def make_topic(admin: adapters.Admin, request: pytest.FixtureRequest) -> Iterator[MakeTopic]:
    """make_topic(partitions=1, **configs with _ for .) -> name; deleted after the test."""
    made: list[str] = []

    def make(partitions: int = 1, **configs: object) -> str:
        stem = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[:60]
        name = f"{stem}-{os.getpid()}-{adapters.next_number()}"
        admin.create(name, partitions, {k.replace("_", "."): str(v) for k, v in configs.items()})
        made.append(name)
        return name

    yield make
    for name in made:
        admin.delete(name)


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic()


@pytest.fixture
def batches_of(server: Server) -> Callable[..., list[batches.Batch]]:
    """batches_of(topic, partition=0): the batches on the broker's disk."""
    if server.data_dir is None:
        requirements.skip_missing("the broker's data directory", "name it: KBROKER_TEST_DATA_DIR")
    data_dir = server.data_dir
    return lambda topic, partition=0: batches.read_batches(data_dir, topic, partition)


@pytest.fixture(scope="session")
def tools() -> Iterator[Tools]:
    """Apache Kafka's tools in one JVM."""
    made = Tools()
    yield made
    made.close()


@pytest.fixture
def start(bootstrap: str, tmp_path: Path) -> Iterator[Start]:
    """start(library): its program, running until the test ends; its stderr joins a failure."""
    with ExitStack() as stack:
        log_path = tmp_path / "agents.log"
        log = stack.enter_context(log_path.open("wb"))
        try:
            yield lambda library: stack.enter_context(programs.agent(library, bootstrap, log))
        finally:
            print(log_path.read_text(errors="replace")[-AGENTS_LOG_CHARACTERS:])


@pytest.fixture(scope="module")
def running(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[programs.Library, int], Agent]]:
    """running(library, number): its program number so, kept for the module's other tests."""
    made: dict[tuple[str, int], Agent] = {}
    with ExitStack() as stack:
        log = stack.enter_context((tmp_path_factory.mktemp("agents") / "log").open("wb"))

        def give(library: programs.Library, number: int = 0) -> Agent:
            at = (library.name, number)
            if at not in made:
                made[at] = stack.enter_context(programs.agent(library, server.bootstrap, log))
            return made[at]

        yield give


@pytest.fixture
def groups(bootstrap: str) -> Groups:
    return Groups(bootstrap)


@pytest.fixture(params=adapters.CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest, bootstrap: str) -> adapters.Client:
    """Each Python client library in turn."""
    made: adapters.Client = request.param(bootstrap)
    return made
