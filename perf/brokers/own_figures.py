"""What a broker says of itself, by Kafka's names: kbroker over HTTP, Apache Kafka over JMX.

Both tell a request's time as quantiles of the last minutes and count everything else since the
start. Apache Kafka rounds each time to a millisecond before it counts it. To get the time of one
load alone, ask a broker that had no other.
"""

from __future__ import annotations

import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final, NamedTuple

from lab.jars import KAFKA
from perf.brokers.base import BrokerError

WAIT_S: Final = 30.0
BYTES_MAX: Final = 16 << 20
QUANTILES: Final = {"p50": "0.5", "p99": "0.99", "p99.9": "0.999"}
_JMX_QUANTILES: Final = {
    "p50": "50thPercentile", "p99": "99thPercentile", "p99.9": "999thPercentile",
}  # fmt: skip
# The parts of a request's time, in their order, by the names of their metrics.
LEGS: Final = {
    "queue": "RequestQueueTimeMs",
    "local": "LocalTimeMs",
    "remote": "RemoteTimeMs",
    "answer queue": "ResponseQueueTimeMs",
    "send": "ResponseSendTimeMs",
}
_REQUESTS: Final = "kafka.network:type=RequestMetrics"
_PRODUCE: Final = f"{_REQUESTS},name=TotalTimeMs,request=Produce"
_PRODUCE_LEGS: Final = {
    leg: f"{_REQUESTS},name={name},request=Produce" for leg, name in LEGS.items()
}
_FOLLOWER: Final = f"{_REQUESTS},name=TotalTimeMs,request=FetchFollower"
_IN: Final = "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec"
_OUT: Final = "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec"
_TIMES: Final = "kafka_network_requestmetrics_totaltimems"
_LEG_TIMES: Final = {leg: f"kafka_network_requestmetrics_{n.lower()}" for leg, n in LEGS.items()}
_STATES: Final = "kbroker_channel_state_seconds_total"
_SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


class OwnFigures(NamedTuple):
    """`legs_us`: the median of each part of a produce; `state_s`: seconds of channels that produce,
    by the channel's state, kbroker's alone."""

    produce_us: Mapping[str, float]
    legs_us: Mapping[str, float]
    produces: float
    produced_bytes: float
    follower_fetches: float
    replicated_bytes: float
    state_s: Mapping[str, float]


def of_kbroker(address: str) -> OwnFigures:
    """From its admin listener, host:port. BrokerError."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as answer:
            text = answer.read(BYTES_MAX).decode()
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise BrokerError(f"{address} says no metrics: {error}") from None
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for name, labels, value in _SAMPLE.findall(text):
        found[name, frozenset(_LABEL.findall(labels))] = float(value)

    def one(name: str, **labels: str) -> float:
        return found.get((name, frozenset(labels.items())), 0.0)

    return OwnFigures(
        {
            name: one(_TIMES, request="Produce", quantile=quantile) * 1e3
            for name, quantile in QUANTILES.items()
        },
        {
            leg: one(name, request="Produce", quantile=QUANTILES["p50"]) * 1e3
            for leg, name in _LEG_TIMES.items()
        },
        one(f"{_TIMES}_count", request="Produce"),
        one("kafka_server_brokertopicmetrics_bytesin_total"),
        one(f"{_TIMES}_count", request="FetchFollower"),
        one("kafka_server_brokertopicmetrics_replicationbytesout_total"),
        {
            dict(labels)["state"]: seconds
            for (name, labels), seconds in found.items()
            if name == _STATES and ("request", "Produce") in labels
        },
    )


def jmx_flags(address: str) -> tuple[str, ...]:
    """With which a JVM answers JMX at this host:port, and nowhere else."""
    host, _, port = address.rpartition(":")
    given = {
        "com.sun.management.jmxremote.host": host,
        "com.sun.management.jmxremote.port": port,
        "com.sun.management.jmxremote.rmi.port": port,
        "com.sun.management.jmxremote.authenticate": "false",
        "com.sun.management.jmxremote.ssl": "false",
        "java.rmi.server.hostname": host,
    }
    return tuple(f"-D{name}={value}" for name, value in given.items())


def of_kafka(address: str) -> OwnFigures:
    """From its JMX port, host:port, by Apache Kafka's own tool. BrokerError."""
    command = ["java", "-cp", KAFKA.fetch(), "org.apache.kafka.tools.JmxTool", "--one-time"]
    command += ["--report-format", "properties"]
    command += ["--jmx-url", f"service:jmx:rmi:///jndi/rmi://{address}/jmxrmi"]
    for name in (_PRODUCE, *_PRODUCE_LEGS.values(), _FOLLOWER, _IN, _OUT):
        command += ["--object-name", name]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    except subprocess.TimeoutExpired:
        raise BrokerError(f"{address} says nothing over JMX within {WAIT_S:.0f} s") from None
    found = of_properties(printed.stdout)
    if printed.returncode or not found:
        raise BrokerError(f"{address} over JMX: {(printed.stdout + printed.stderr)[-300:].strip()}")

    def one(bean: str, attribute: str = "Count") -> float:
        return found.get(f"{bean}:{attribute}", 0.0)

    return OwnFigures(
        {name: one(_PRODUCE, attribute) * 1e3 for name, attribute in _JMX_QUANTILES.items()},
        {leg: one(name, _JMX_QUANTILES["p50"]) * 1e3 for leg, name in _PRODUCE_LEGS.items()},
        one(_PRODUCE),
        one(_IN),
        one(_FOLLOWER),
        one(_OUT),
        {},
    )


def of_properties(text: str) -> dict[str, float]:
    """JmxTool's lines `bean:attribute=value`; what is no number is left out."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            continue
    return found
