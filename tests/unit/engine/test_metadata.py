"""Metadata answered in C, beside the Python handler: the same bytes for every image and request.

The Python handler is the oracle: it is called with the same image, address and connection number,
and its answer is what must come from the socket. Where it closes, the connection must end.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker.metadata.image import (
    INTERNAL_TOPICS,
    BrokerEndpoint,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from kbroker.protocol.versions import SERVED, is_flexible
from kbroker.replica.metadata_publisher import MetadataPublisher
from kbroker.types import ApiKey
from tests.support import requirements
from tests.unit.handlers.support import (
    CLUSTER_ID,
    NODE_ID,
    FakeBroker,
    FakeRequest,
    changed,
    written,
)
from tests.unit.handlers.test_metadata import ask
from tests.unit.net.harness import Client, Rig, cold_frame, framed, header, running

VERSIONS = range(14)
UNKNOWN_ID = uuid.UUID(int=77)


class Beside:
    """The compiled path on a socket, and the Python handler with the same image."""

    def __init__(
        self, directory: Path, *, create: bool = False, host: str = "", **options: Any
    ) -> None:
        overrides = [f"auto.create.topics.enable={'true' if create else 'false'}"]
        self.broker = FakeBroker(overrides=overrides)
        self.rig_context = running(directory, **options)
        self.rig: Rig = self.rig_context.__enter__()
        served = SERVED[ApiKey.METADATA]
        self.rig.server.set_hot(ApiKey.METADATA, served.min, served.max)
        advertised = (host, 4711) if host else None
        self.rig.hot.advertise(NODE_ID, [advertised], create)
        if advertised is not None:
            self.broker.services.advertised = lambda request: advertised
        self.publisher = MetadataPublisher(self.rig.table)
        self.in_python: list[Any] = []
        self.rig.dispatch = self._dispatch
        self.connect()

    def _dispatch(self, request: Any) -> None:
        if request.api_key != ApiKey.METADATA:
            self.connection_id = request.connection_id
            request.respond(b"")
            return
        self.in_python.append(request.reason)
        twin = self.oracle(request.api_version, request.body, request.local_host)
        if twin.answer is None:
            request.close_connection("as the oracle")
        else:
            request.respond(twin.answer)

    def connect(self) -> None:
        self.client: Client = self.rig.client()
        self.client.send(cold_frame())
        self.client.receive()

    def show(self, image: ClusterImage) -> None:
        self.broker.controller.image = image
        self.publisher.show(image)

    def oracle(self, version: int, body: bytes, local_host: str = "127.0.0.1") -> FakeRequest:
        return self.broker.send(
            ApiKey.METADATA,
            version,
            body,
            local_host=local_host,
            local_port=self.rig.port,
            connection_id=self.connection_id,
        )

    def compare(self, version: int, body: bytes, *, in_c: bool | None = None) -> bytes | None:
        """The body that both answer; None: both end the connection."""
        self.in_python.clear()
        before = self.rig.hot.statistics()["metadata_requests"]
        self.client.send(framed(header(ApiKey.METADATA, version, 99) + body))
        expected = self.oracle(version, body)
        if expected.answer is None:
            assert self.client.ended()
            self.connect()
            return None
        flexible = is_flexible(ApiKey.METADATA, version)
        got = self.client.receive()
        assert got == struct.pack(">i", 99) + b"\0" * flexible + expected.answer
        counted = self.rig.hot.statistics()["metadata_requests"] - before
        assert counted == (not self.in_python)
        if in_c is not None:
            assert in_c is not bool(self.in_python), self.in_python
        return expected.answer

    def close(self) -> None:
        self.rig_context.__exit__(None, None, None)


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path)
    yield made
    made.close()


def topic_of(name: str, *partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> TopicImage:
    """A topic of partitions (leader, replicas, in-sync replicas)."""
    return TopicImage(
        name,
        uuid.uuid5(UNKNOWN_ID, name),
        tuple(
            PartitionImage(name, index, replicas, isr, leader, 3 + index, 0)
            for index, (leader, replicas, isr) in enumerate(partitions)
        ),
        {},
        name in INTERNAL_TOPICS,
    )


def image_of(*topics: TopicImage, nodes: tuple[int, ...] = (1, 2)) -> ClusterImage:
    image = ClusterImage(1, CLUSTER_ID, NODE_ID).with_topics(topics)
    return image.with_brokers(
        BrokerImage(node, f"host{node}", 9000 + node, None if node % 2 else f"räck{node}")
        for node in nodes
    )


IMAGE = image_of(
    topic_of("b", (1, (1,), (1,)), (2, (2, 1), (2,)), (-1, (3,), (3,))),
    topic_of("a", (1, (1, 9), (1,))),
    topic_of("__consumer_offsets", *[(1, (1,), (1,))] * 50),
    topic_of("none"),
)


def bodies(version: int) -> list[tuple[Any, bool]]:
    """Requests, and whether C answers them when topics are not created by name."""
    everything: list[Any] | None = None if version else []
    rows: list[tuple[Any, bool]] = [
        (ask(version, everything), True),
        (ask(version, everything, create=True, topic_operations=True), True),
        (ask(version, []), True),
        (ask(version, ["a"], cluster_operations=True), True),
        (ask(version, ["b", "a", "b", "a", "none"], topic_operations=True), True),
        (ask(version, ["zz", "a", "zz", "y-._Z9"], topic_operations=True), True),
        (ask(version, ["zz"], create=True), True),
        (ask(version, ["a b"]), False),
        (ask(version, ["."]), False),
        (ask(version, ["..", "a"]), False),
        (ask(version, [""]), False),
        (ask(version, ["x" * 249]), True),
        (ask(version, ["x" * 250]), False),
        (ask(version, ["ä"]), False),
        (ask(version, [f"t{i}" for i in range(64)]), True),
        (ask(version, [f"t{i}" for i in range(65)]), False),
    ]
    if version >= 10:
        known = IMAGE.topics["b"].topic_id
        in_c = version >= 12
        rows += [
            (ask(version, [known]), in_c),
            (ask(version, [known, UNKNOWN_ID, known, UNKNOWN_ID], topic_operations=True), in_c),
            (ask(version, [("a", None), (None, known)]), in_c),
            (ask(version, [("zz", UNKNOWN_ID)], create=True), in_c),
            (ask(version, [(None, None)]), False),
        ]
    return rows


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_bytes_as_from_python(beside: Beside, version: int) -> None:
    beside.show(IMAGE)
    for request, in_c in bodies(version):
        beside.compare(version, written(request), in_c=in_c)
    for nodes in ((), (1,), (2,), (1, 2, 3), (3, 9)):
        beside.show(IMAGE.with_brokers(BrokerImage(n, f"h{n}", n, f"r{n}") for n in nodes))
        beside.compare(version, written(ask(version, None if version else [])), in_c=True)


@pytest.mark.parametrize("version", [0, 8, 13])
def test_brokers_are_named_by_their_addresses_for_the_listener(
    beside: Beside, version: int
) -> None:
    """One that has none there is left out, leader or not."""
    inside = BrokerEndpoint("INSIDE", "in-3", 2)
    outside = BrokerEndpoint("PLAINTEXT", "out3", 4)
    brokers = [
        BrokerImage(1, "in-1", 1, endpoints=(BrokerEndpoint("PLAINTEXT", "out1", 1),)),
        BrokerImage(2, "in-2", 2, endpoints=(BrokerEndpoint("INSIDE", "in-2", 2),)),
        BrokerImage(3, "in-3", 3, "r", endpoints=(inside, outside)),
    ]
    a = IMAGE.topics["a"]
    led_by_two = tuple(changed(each, leader=2) for each in a.partitions)
    topic = changed(a, name="led-by-2", partitions=led_by_two)
    beside.show(IMAGE.with_brokers(brokers).with_topics([topic]))
    request = written(ask(version, None if version else []))
    found = beside.compare(version, request, in_c=True)
    assert found is not None
    answered = [b"in-2", 2], [b"in-3", 2], [b"in-3", 3], [b"out3", 4]
    assert [found.count(struct.pack(">4si", *each)) for each in answered] == [0, 0, 0, 1]


@pytest.mark.parametrize("version", [0, 3, 4, 8, 13])
def test_a_name_that_would_be_created_is_for_python(tmp_path: Path, version: int) -> None:
    beside = Beside(tmp_path, create=True)
    beside.show(IMAGE)
    asked = beside.broker.controller.asked
    beside.broker.controller.hold = True
    beside.compare(version, written(ask(version, ["zz", "a"], create=True)), in_c=False)
    assert [spec.name for specs in asked for spec in specs] == ["zz"]
    beside.compare(version, written(ask(version, ["a"], create=True)), in_c=True)
    if version >= 4:
        beside.compare(version, written(ask(version, ["zz"], create=False)), in_c=True)
    beside.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_advertised_address(tmp_path: Path, version: int) -> None:
    beside = Beside(tmp_path, host="broker.example.com")
    beside.show(IMAGE)
    answer = beside.compare(version, written(ask(version, ["a"])), in_c=True)
    assert answer is not None and b"broker.example.com" in answer
    beside.close()


def test_no_view_and_no_address_is_for_python(tmp_path: Path) -> None:
    beside = Beside(tmp_path)
    body = written(ask(9, None))
    beside.compare(9, body, in_c=False)
    beside.show(IMAGE)
    beside.compare(9, body, in_c=True)
    beside.rig.table.hide()
    beside.compare(9, body, in_c=False)
    assert beside.in_python == ["metadata"]
    beside.rig.table.show([], [], [], CLUSTER_ID)
    beside.broker.controller.image = image_of(nodes=())
    beside.compare(9, body, in_c=True)
    beside.rig.hot.advertise(NODE_ID, [], False)
    beside.compare(9, body, in_c=False)
    beside.close()


def test_a_topic_that_cannot_be_published_leaves_metadata_to_python(beside: Beside) -> None:
    beside.show(IMAGE)
    broken = topic_of("c", (1, (1,), (1,)))
    broken = changed(broken, partitions=(changed(broken.partitions[0], leader=2**40),))
    beside.publisher.show(IMAGE.with_topics([broken]))
    beside.compare(9, written(ask(9, None)), in_c=False)
    beside.show(IMAGE.with_topics([topic_of("c", (1, (1,), (1,)))]))
    beside.compare(9, written(ask(9, None)), in_c=True)


def test_ten_thousand_partitions_and_a_long_list_of_replicas(beside: Beside) -> None:
    many = tuple(range(1, 200))
    beside.show(
        image_of(
            topic_of("long", (5, many, many), (500, many[:126], ()), (1, many[:127], many[1:])),
            *(topic_of(f"t{i}", *[(1, (1,), (1,))] * 100) for i in range(100)),
        )
    )
    for version in VERSIONS:
        beside.compare(version, written(ask(version, None if version else [])), in_c=True)


def test_a_missing_name_is_not_compared_with_those_that_are_there(beside: Beside) -> None:
    """Named again and again after many topics, beside as many names that are there."""
    known = [f"t{number}" for number in range(2_000)]
    beside.show(image_of(*(topic_of(name, (1, (1,), (1,))) for name in known)))
    took = {}
    for name in ("t0", "missing"):
        body = written(ask(9, [*known, *[name] * 100_000]))
        best = 1e9
        for _ in range(3):
            began = time.process_time()  # of all that is done here; what others do is not
            beside.client.send(framed(header(ApiKey.METADATA, 9, 99) + body))
            beside.client.receive()
            best = min(best, time.process_time() - began)
        took[name] = best
    assert beside.in_python == []
    assert took["missing"] < 4 * took["t0"]


@pytest.mark.parametrize("version", [1, 9, 12])
def test_bytes_that_do_not_parse_end_the_connection(beside: Beside, version: int) -> None:
    beside.show(IMAGE)
    whole = written(ask(version, ["a", "b"]))
    for length in range(len(whole)):
        beside.compare(version, whole[:length])
    beside.compare(version, whole + b"after", in_c=True)
    many = b"\xff\xff\xff\xff\x0f" if version >= 9 else b"\x7f\xff\xff\xff"
    assert beside.compare(version, many + whole) is None
    beside.compare(version, (b"\xff\xff\xff\xff\x1f" if version >= 9 else b"\x80\0\0\0") + whole)


def test_answers_keep_the_order_of_a_connection(beside: Beside) -> None:
    """Those that Python answers come in their place among those that C answers."""
    beside.show(IMAGE)
    frames = b""
    for number in range(60):
        name = "a b" if number % 3 == 0 else "a"
        frames += framed(header(ApiKey.METADATA, 9, number) + written(ask(9, [name])))
    beside.client.send(frames)
    got = [struct.unpack(">i", beside.client.receive()[:4])[0] for _ in range(60)]
    assert got == list(range(60))
    assert len(beside.in_python) == 20


def test_the_address_of_a_connection_by_ipv6(tmp_path: Path) -> None:
    try:
        beside = Beside(tmp_path, hosts=("127.0.0.1", "::1"))
    except OSError:
        requirements.skip_on_this_machine("no IPv6 loopback")
    beside.show(image_of(*IMAGE.topics.values(), nodes=(1,)))
    body = written(ask(9, ["a"]))
    with socket.create_connection(("::1", beside.rig.port), 20) as client:
        client.sendall(framed(header(ApiKey.METADATA, 9, 99) + body))
        got = client.recv(1 << 16)
        assert got[9:] == beside.oracle(9, body, "::1").answer
        assert b"\x04::1" in got
    assert not beside.in_python
    beside.close()


def test_an_answer_shows_one_moment(tmp_path: Path) -> None:
    """Two readers beside a publisher: each answer is that of one image, whole."""
    beside = Beside(tmp_path, handlers=2)
    images = [
        image_of(*(topic_of(f"a{i}", (1, (1,), (1,))) for i in range(50)), nodes=(1,)),
        image_of(*(topic_of(f"b{i}", (2, (2, 1), (2,))) for i in range(60)), nodes=(1, 2)),
        image_of(*(topic_of(f"a{i}", (2, (2, 1), (2,))) for i in range(50)), nodes=(2,)),
    ]
    body = written(ask(12, None))
    frame = framed(header(ApiKey.METADATA, 12, 99) + body)
    clients = [beside.rig.client() for _ in range(2)]
    possible: list[set[bytes]] = [set() for _ in clients]
    for image in images:
        beside.show(image)
        beside.compare(12, body, in_c=True)
        for client, known in zip(clients, possible, strict=True):
            client.send(frame)
            known.add(client.receive())
    ended = threading.Event()
    seen: list[set[bytes]] = [set() for _ in clients]

    def read(client: Client, found: set[bytes]) -> None:
        while not ended.is_set():
            client.send(frame)
            found.add(client.receive())

    readers = [threading.Thread(target=read, args=pair) for pair in zip(clients, seen, strict=True)]
    for reader in readers:
        reader.start()
    for number in range(600):
        beside.publisher.show(images[number % 3])
    ended.set()
    for reader in readers:
        reader.join()
    assert all(found <= known for found, known in zip(seen, possible, strict=True))
    assert not beside.in_python
    beside.close()


# --- any image, any request ----------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "B", "a.b", "a-b", "x" * 249, "__transaction_state", "ab"])
NODES = st.integers(0, 6)


@st.composite
def topics(draw: st.DrawFn) -> TopicImage:
    name = draw(NAMES)
    partitions = []
    for _ in range(draw(st.integers(0, 4))):
        replicas = tuple(draw(st.lists(NODES, max_size=4, unique=True)))
        isr = tuple(node for node in replicas if draw(st.booleans()))
        partitions.append((draw(st.sampled_from([-1, 0, *replicas])), replicas, isr))
    made = topic_of(name, *partitions)
    return changed(made, topic_id=uuid.UUID(int=draw(st.integers(1, 40)) << 64))


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    chosen = draw(
        st.lists(topics(), max_size=6, unique_by=(lambda t: t.name, lambda t: t.topic_id))
    )
    image = ClusterImage(1, CLUSTER_ID, NODE_ID).with_topics(chosen)
    texts = st.text(max_size=5)
    ports = st.integers(0, 65535)
    listeners = st.lists(st.sampled_from(["PLAINTEXT", "INSIDE"]), max_size=2, unique=True)
    return image.with_brokers(
        BrokerImage(
            *(node, draw(texts), draw(st.just(-1) | ports), draw(st.none() | texts)),
            endpoints=tuple(
                BrokerEndpoint(name, draw(texts), draw(ports)) for name in draw(listeners)
            ),
        )
        for node in draw(st.lists(NODES, max_size=4, unique=True))
    )


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, bytes]:
    version = draw(st.integers(0, 13))
    names = NAMES | st.sampled_from(["", ".", "..", "no such", "zz", "y" * 250, "é"])
    ids = st.integers(0, 45).map(lambda number: uuid.UUID(int=number << 64) if number else None)
    items: Any = names
    if version >= 10:
        items = st.tuples(names, st.none()) | st.tuples(st.none() | names, ids)
    asked = draw(st.lists(items, max_size=6) | (st.none() if version else st.just([])))
    body = written(
        ask(
            version,
            asked,
            create=draw(st.booleans()),
            topic_operations=draw(st.booleans()),
            cluster_operations=draw(st.booleans()),
        )
    )
    if draw(st.integers(0, 3)) == 0:
        spoiled = bytearray(body)
        for _ in range(draw(st.integers(1, 3))):
            spoiled[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
        body = bytes(spoiled)[: draw(st.integers(0, len(body)))]
    return version, body


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    made = Beside(tmp_path_factory.mktemp("beside"))
    yield made
    made.close()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(images(), min_size=1, max_size=3), st.lists(requests(), min_size=1, max_size=8))
def test_any_image_and_any_request(
    shared: Beside, sequence: list[ClusterImage], asked: list[tuple[int, bytes]]
) -> None:
    for image in sequence:
        shared.show(image)
        for version, body in asked:
            shared.compare(version, body)
