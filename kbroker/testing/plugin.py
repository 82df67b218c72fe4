"""The pytest plugin: fixtures, and what a failure should have beside it.

    def test_orders(kbroker_broker, kbroker_topic): ...

kbroker_broker    one broker for the whole run (for each worker under xdist), started when the first
                  test asks; rules that a test leaves are removed after it
kbroker_topic     the name of a topic of this test's own, with one partition
kbroker_new_topic makes more of them: kbroker_new_topic(partitions=3, cleanup_policy="compact")
kbroker_own_broker  a broker of this test's own, for tests that stop it or move its clock
kbroker_cluster   three brokers for the whole run, healed after each test that asks for them

A failed test's report ends with the log lines of each running broker since the test began, and
its last requests. With `--kbroker-external HOST:PORT` the tests use that broker, which need not
be kbroker. The ini option `kbroker_config` has lines `key=value` for the brokers of the fixtures.

Loaded in every run of pytest where kbroker is installed: nothing heavy is imported before a fixture
is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kbroker.testing.broker import Broker
    from kbroker.testing.cluster import Cluster
    from kbroker.testing.external import ExternalBroker
    from kbroker.testing.process import ServerProcess

LAST_REQUESTS = 50
LOGGED_BEFORE = pytest.StashKey[dict[Any, int]]()  # by broker: bytes of its log as the test began

_shared: Broker | ExternalBroker | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kbroker")
    group.addoption(
        "--kbroker-external",
        metavar="HOST:PORT",
        help="use a broker that runs already instead of starting one",
    )
    parser.addini("kbroker_config", "key=value lines for the brokers of the fixtures", "linelist")


@pytest.fixture(scope="session")
def kbroker_broker(pytestconfig: pytest.Config) -> Iterator[Broker | ExternalBroker]:
    """The broker of this run; kbroker.testing.Broker has its methods."""
    global _shared
    external = pytestconfig.getoption("--kbroker-external")
    if external:
        from kbroker.testing.external import ExternalBroker

        _shared = ExternalBroker(external)
        yield _shared
        _shared.close()
    else:
        from kbroker.testing.broker import Broker

        with Broker(_config(pytestconfig), trace=True) as broker:
            _shared = broker
            yield broker
    _shared = None


@pytest.fixture
def kbroker_new_topic(kbroker_broker: Broker) -> Iterator[Callable[..., str]]:
    """kbroker_new_topic(partitions=1, **configs) -> the name of a new topic."""
    made: list[str] = []

    def make(partitions: int = 1, **configs: object) -> str:
        name = kbroker_broker.create_topic("", partitions, **configs)
        made.append(name)
        return name

    yield make
    kbroker_broker.clear()
    for name in made:
        kbroker_broker.delete_topic(name)


@pytest.fixture
def kbroker_topic(kbroker_new_topic: Callable[..., str]) -> str:
    """The name of a topic of this test's own, with one partition."""
    return kbroker_new_topic()


@pytest.fixture
def kbroker_own_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """A broker of this test's own, always started here."""
    from kbroker.testing.broker import Broker

    with Broker(_config(pytestconfig), trace=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def kbroker_shared_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """The cluster of this run; tests ask for `kbroker_cluster`."""
    from kbroker.testing.cluster import Cluster

    with Cluster(3, _config(pytestconfig), trace=True) as cluster:
        yield cluster


@pytest.fixture
def kbroker_cluster(kbroker_shared_cluster: Cluster) -> Iterator[Cluster]:
    """Three brokers; whatever a test does to them is undone after it."""
    yield kbroker_shared_cluster
    kbroker_shared_cluster.heal()


def _config(pytestconfig: pytest.Config) -> dict[str, object]:
    lines: list[str] = pytestconfig.getini("kbroker_config")
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[LOGGED_BEFORE] = {server: server.log_bytes() for server in _running()}


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    if _shared is not None:
        _shared.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for title, text in _lines_of_brokers(item.stash.get(LOGGED_BEFORE, {})):
            report.sections.append((title, text))
    return report


def _running() -> tuple[ServerProcess, ...]:
    """Nothing is imported for it: who started a broker has."""
    process = sys.modules.get("kbroker.testing.process")
    return process.running() if process else ()


def _lines_of_brokers(before: dict[Any, int]) -> Iterator[tuple[str, str]]:
    for server in _running():
        if logged := server.log_text(before.get(server, 0)):
            from kbroker.testing.process import log_tail

            yield f"log of {server.name}", log_tail(logged)
        last_requests: Any = getattr(server, "last_requests", None)
        if last_requests is None:
            continue
        try:
            seen = last_requests(LAST_REQUESTS)
        except Exception as error:
            yield f"requests of {server.name}", f"it does not tell: {error}"
            continue
        yield f"requests of {server.name}", "\n".join(each.text() for each in seen)
