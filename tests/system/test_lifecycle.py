"""Start, idle and stop: exit statuses, ready file, what a wrong start says, what idling costs."""

from __future__ import annotations

import re
import signal
import socket
import time
from pathlib import Path

import pytest

from kbroker.testing.plain import PlainBroker as Broker
from kbroker.testing.process import BrokerFailed
from lab.ports import free_port
from tests.clients.adapters import Admin, Confluent, Record
from tests.system import process_facts
from tests.system.conftest import MakeBroker

pytestmark = pytest.mark.client

CONFIG_INVALID = 3
ADDRESS_IN_USE = 4
DATA_DIRECTORY = 5
IDLE_BYTES_MAX = 60 << 20
OPENED_LATER = 20  # by parts that start after the ready line


def failed_start(broker: Broker) -> BrokerFailed:
    with pytest.raises(BrokerFailed) as caught:
        broker.start()
    assert "Traceback" not in caught.value.log
    return caught.value


def line_with(log: str, *parts: str) -> str:
    """The one line that says all of it; a cause and its remedy belong together."""
    lines = [line for line in log.splitlines() if all(part in line for part in parts)]
    assert lines, f"no line with {parts} in:\n{log}"
    return lines[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0(broker: Broker, number: signal.Signals) -> None:
    Confluent(broker.bootstrap).produce("t", [Record(b"x")])
    broker.signal(number)
    assert broker.wait() == 0


def test_the_ready_file_says_where_it_is(broker: Broker) -> None:
    assert broker.ready["pid"] == broker.pid
    assert broker.ready["bootstrap"] == broker.bootstrap
    assert "admin" in broker.ready
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30):
        pass


def test_the_ready_line(broker: Broker) -> None:
    """What scripts look for, Apache Kafka's image tests among them."""
    pattern = rf"\[KafkaServer id={broker.node_id}\] started \(kbroker\) in \d+\.\d+ s on "
    assert re.search(pattern + re.escape(broker.bootstrap), broker.log_text())


@pytest.mark.parametrize("key", ["broker.id", "node.id"])
def test_node_id_0_is_an_id(make_broker: MakeBroker, key: str) -> None:
    broker = make_broker({key: 0}).start()
    assert broker.node_id == 0
    (node,) = Admin(broker.bootstrap).cluster().nodes
    assert node.id == 0


def test_ipv6_loopback_is_served_too(broker: Broker) -> None:
    port = int(broker.bootstrap.rpartition(":")[2])
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("machine: no IPv6")
    with socket.create_connection(("::1", port), timeout=30):
        pass


@pytest.mark.parametrize(
    ("listeners", "served"),
    [
        ("PLAINTEXT://:{}", {"127.0.0.1", "::1"}),
        ("PLAINTEXT://[::]:{}", {"127.0.0.1", "::1"}),
        ("PLAINTEXT://0.0.0.0:{0},PLAINTEXT://[::]:{0}", {"127.0.0.1", "::1"}),
        ("PLAINTEXT://127.0.0.1:{}", {"127.0.0.1"}),
        ("PLAINTEXT://[::1]:{}", {"::1"}),
    ],
)
def test_every_address_is_of_ipv4_and_of_ipv6(
    make_broker: MakeBroker, listeners: str, served: set[str]
) -> None:
    """As Apache Kafka's empty host and its [::]."""
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("machine: no IPv6")
    port = free_port()
    make_broker({"listeners": listeners.format(port)}, port=port).start()
    reached = set()
    for host in ("127.0.0.1", "::1"):
        try:
            socket.create_connection((host, port), timeout=10).close()
        except ConnectionRefusedError:
            continue
        reached.add(host)
    assert reached == served


def test_port_in_use(make_broker: MakeBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failure = failed_start(make_broker(port=port))
    assert failure.exit_status == ADDRESS_IN_USE
    line_with(failure.log, str(port))


def test_data_directory_in_use(broker: Broker, make_broker: MakeBroker) -> None:
    failure = failed_start(make_broker(data_dir=broker.data_dir))
    assert failure.exit_status == DATA_DIRECTORY
    line_with(failure.log, str(broker.data_dir))
    assert broker.alive
    assert [d.error for d in Confluent(broker.bootstrap).produce("t", [Record(b"x")])] == [0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num.io.threads", "many"),
        ("num.io.threads", "0"),
        ("log.segment.bytes", "-5"),
        ("auto.create.topics.enable", "perhaps"),
        ("compression.type", "zip"),
    ],
)
def test_a_bad_value(make_broker: MakeBroker, key: str, value: str) -> None:
    failure = failed_start(make_broker({key: value}))
    assert failure.exit_status == CONFIG_INVALID
    line_with(failure.log, key, value)


def test_an_unknown_key_is_a_warning_with_the_nearest_name(make_broker: MakeBroker) -> None:
    broker = make_broker({"num.io.thread": 3}).start()
    line_with(broker.log_text(), "num.io.thread", "num.io.threads")


def test_data_outlives_a_restart(broker: Broker) -> None:
    Admin(broker.bootstrap).create("kept", 2)
    client = Confluent(broker.bootstrap)
    client.produce("kept", [Record(b"%d" % n) for n in range(100)], partition=1)
    described = Admin(broker.bootstrap).cluster()
    broker.restart()
    assert Admin(broker.bootstrap).topics()["kept"] == 2
    again = Admin(broker.bootstrap).cluster()
    assert again.cluster_id == described.cluster_id
    values = [r.value for r in client.consume("kept", 100, partition=1)]
    assert values == [b"%d" % n for n in range(100)]
    (delivery,) = client.produce("kept", [Record(b"next")], partition=1)
    assert delivery.offset == 100


def test_idling_costs_little(broker: Broker) -> None:
    Confluent(broker.bootstrap).produce("t", [Record(b"x")])
    assert process_facts.resident_bytes(broker.pid) < IDLE_BYTES_MAX
    # What is loaded after the ready line takes its time once; any quiet second shows the rest.
    process_facts.wait_until_quiet(broker.pid)
    shares = []
    for _ in range(5):
        began_ns, before_ns = time.monotonic_ns(), process_facts.cpu_ns(broker.pid)
        time.sleep(1)  # the thing measured is this stretch of time, and a busy machine's is longer
        spent_ns = process_facts.cpu_ns(broker.pid) - before_ns
        shares.append(spent_ns / (time.monotonic_ns() - began_ns))
    assert sorted(shares)[1] <= 0.02, shares


def test_connections_leave_nothing(broker: Broker) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    client = Confluent(broker.bootstrap)
    client.produce("t", [Record(b"x")])
    before = process_facts.open_files(broker.pid)
    for _ in range(200):
        with socket.create_connection((host, int(port)), timeout=30):
            pass
    deadline = time.monotonic() + 60
    while process_facts.open_files(broker.pid) > before + OPENED_LATER:
        assert time.monotonic() < deadline, "closed connections keep their descriptors"
        time.sleep(0.01)


def test_threads_are_few_and_the_network_ones_have_names(broker: Broker) -> None:
    names = process_facts.thread_names(broker.pid)
    assert any(name.startswith("acceptor-") for name in names)
    assert any(name.startswith("network-") for name in names)
    assert len(names) <= 40
