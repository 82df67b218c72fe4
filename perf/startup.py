"""From exec to the first acknowledged produce, as a looping raw client sees it.

The client connects as soon as it can, asks for the topic's metadata (which creates it where it is
not there yet) and produces with acks=1 until that is acknowledged. Three ways to begin: an empty
directory (for Apache Kafka: formatted beforehand, which kbroker does itself), the same directory
after a clean stop, and after kill -9 while a client was producing; there, what was acknowledged
must still be held.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perf import batch, requests
from perf._load import LoadError
from perf.brokers.base import START_WAIT_S, Broker, BrokerError
from perf.cells import CellError, run_load
from perf.client import Client, ClientError
from perf.process import Watch, settled_memory
from perf.requests import Topic
from perf.spec import Partition, Run, Stream
from perf.wire import Reader, WireError, Writer

TOPIC = "perf-start"
RETRY_S = 0.0005
KILL_AFTER_S = 0.5
PRODUCE_VERSION = 7


@dataclass(frozen=True)
class StartResult:
    """Seconds from exec to the first acknowledged produce; None where not asked for."""

    broker: str
    empty_s: float
    again_s: float
    killed_s: float
    killed_records: int  # acknowledged before the kill and found after it
    resident_bytes: int = 0  # after the first of them, settled
    quiet: bool = False  # all three; unknown is not quiet

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def _create_by_metadata(client: Client, name: str) -> None:
    w = Writer().count(1).string(name).put("?", True)
    client.ask(requests.METADATA, 4, bytes(w.data))


def _produce_once(client: Client, body: bytes) -> int:
    """The error code of one produce."""
    r: Reader = client.ask(requests.PRODUCE, PRODUCE_VERSION, body)
    r.count()
    r.string()
    r.count()
    r.get("i")
    return r.get("h")


def first_acknowledged(broker: Broker, topic: str = TOPIC) -> float:
    """Loops until a produce is acknowledged; seconds since the process was started."""
    one = batch.of_records(100, timestamp_ms=time.time_ns() // 1_000_000)
    body = Writer().string(None).put("hi", 1, 10_000).count(1).string(topic).count(1)
    body.put("i", 0).bytes(one.data)
    give_up = time.monotonic() + START_WAIT_S
    client: Client | None = None
    try:
        while time.monotonic() < give_up:
            try:
                if client is None:
                    client = broker.client()
                    _create_by_metadata(client, topic)
                if _produce_once(client, bytes(body.data)) == 0:
                    return (time.monotonic_ns() - broker.started_ns) / 1e9
                _create_by_metadata(client, topic)
            except (OSError, WireError):
                if client is not None:
                    client.close()
                client = None
                broker.check_alive()
            time.sleep(RETRY_S)
    finally:
        if client is not None:
            client.close()
    raise BrokerError(f"{broker.name} acknowledged nothing: {broker.log_tail()}")


def _kill_under_load(broker: Broker, topic: Topic) -> int:
    """kill -9 with a producer running; the number of records that it had acknowledged at least."""
    with broker.client() as client:
        before = sum(client.offsets(topic))
    one = batch.of_records(1000, timestamp_ms=time.time_ns() // 1_000_000)
    connection = requests.produce(PRODUCE_VERSION, topic, [(Partition(0), one)], acks=1)
    stream = Stream("produce", PRODUCE_VERSION, (connection,), in_flight=5)
    spec = Run(broker.host, broker.port, (stream,), warm_s=0, window_s=60)

    def load() -> None:
        try:
            run_load(spec)
        except LoadError:
            pass  # the broker goes away under it: that is the point

    thread = threading.Thread(target=load, name="perf-kill-load")
    thread.start()
    time.sleep(KILL_AFTER_S)
    with broker.client() as client:
        held = sum(client.offsets(topic))
    broker.kill()
    thread.join()
    if held <= before:
        raise CellError(f"{broker.name}: nothing was written before the kill")
    return held


def launched(broker: Broker) -> tuple[float, bool]:
    """Seconds from exec to the first acknowledged produce, and whether nothing else ran."""
    broker.prepare()
    watch = Watch([os.getpid()])
    broker.launch()
    watch.include(broker.pid)
    seconds = first_acknowledged(broker)
    return seconds, watch.guard().quiet


def measure_start(broker: Broker, progress: Callable[[str], None] = lambda _: None) -> StartResult:
    """All three ways, in this order, on one directory. The broker is discarded at the end."""
    try:
        broker.directory.mkdir(parents=True, exist_ok=True)
        empty_s, first_quiet = launched(broker)
        resident = settled_memory(broker.pid).resident
        broker.stop()
        again_s, second_quiet = launched(broker)
        progress(f"start {broker.name}: {empty_s:.3f} s empty, {again_s:.3f} s again")
        topic = Topic(TOPIC, bytes(16), 1)
        held = _kill_under_load(broker, topic)
        killed_s, third_quiet = launched(broker)
        with broker.client() as client:
            found = sum(client.offsets(topic))
        if found < held + 1:
            raise CellError(f"{broker.name}: {held} records before kill -9, {found - 1} after")
        progress(f"start {broker.name}: {killed_s:.3f} s after kill -9, {held} records held")
        quiet = first_quiet and second_quiet and third_quiet
        return StartResult(broker.name, empty_s, again_s, killed_s, held, resident, quiet)
    except ClientError as error:
        raise CellError(str(error)) from error
    finally:
        broker.discard()
