"""Broker keys of the network layer: listeners, sockets, queues, connection limits, threads.

Rows of the table only (see `key.py`); `definition.py` joins them with the other themes.
"""

from __future__ import annotations

import os
from typing import Final

from kbroker.config.admin_listeners import default_admin_listeners
from kbroker.config.key import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    PER_BROKER,
    STRING,
)
from kbroker.config.key import ConfigKey as Key

DEFAULT_LISTENERS: Final = ("PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://[::1]:9092")
DEFAULT_PROTOCOL_MAP: Final = (
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
)


def default_network_threads() -> int:
    """Half the cores this process may use, at least 1 and at most 3.

    On two cores three Processors cost twice the CPU per request of one.
    """
    return max(1, min(3, len(os.sched_getaffinity(0)) // 2))


def _check_response_bytes(count: int) -> str | None:
    """What is wrong, or None: below a megabyte clients would be cut off that read as they can."""
    return None if count == -1 or count >= 1 << 20 else "-1, or 1048576 or more"


def parse_ip_overrides(text: str) -> dict[str, int]:
    """`host:count` pairs of max.connections.per.ip.overrides; raises ValueError on anything else.

    An IPv6 address keeps its colons: the count is what follows the last one.
    """
    overrides: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = part.rpartition(":")
        host = host.strip().removeprefix("[").removesuffix("]")
        if not colon or not host or not count.strip().isdecimal() or not count.isascii():
            raise ValueError(part)
        overrides[host] = int(count)
        if overrides[host] > INT_MAX:
            raise ValueError(part)
    return overrides


def _check_ip_overrides(text: str) -> str | None:
    try:
        parse_ip_overrides(text)
    except ValueError:
        return "pairs host:count separated by commas, such as 10.0.0.7:100,build-host:5"
    return None


KEYS: Final = (
    Key("listeners", LIST, DEFAULT_LISTENERS,
        "Where the broker accepts connections: NAME://host:port, several separated by commas. An"
        " empty host means every address of the machine; IPv6 addresses stand in brackets.",
        check_words="entries NAME://host:port separated by commas", dynamic=PER_BROKER,
        supported=True, kafka="PLAINTEXT://:9092"),
    Key("advertised.listeners", LIST, None,
        "The addresses that brokers give to clients, one for each listener name. Left unset, each"
        " client gets the local address that its own connection reached.",
        check_words="entries NAME://host:port separated by commas", supported=True),
    Key("listener.security.protocol.map", STRING, DEFAULT_PROTOCOL_MAP,
        "Which security protocol each listener name speaks, as NAME:PROTOCOL pairs.",
        check_words="pairs NAME:PROTOCOL separated by commas, PROTOCOL one of PLAINTEXT, SSL,"
        " SASL_PLAINTEXT, SASL_SSL", dynamic=PER_BROKER, supported=True),
    Key("inter.broker.listener.name", STRING, None,
        "The listener on which brokers talk to each other. Unset: the listener whose protocol is"
        " security.inter.broker.protocol.", supported=True),
    Key("security.inter.broker.protocol", STRING, "PLAINTEXT",
        "The security protocol between brokers, for when inter.broker.listener.name is unset.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), supported=True),
    Key("early.start.listeners", LIST, None,
        "Listeners that may open before the authorizer has loaded its rules."),
    Key("num.network.threads", INT, default_network_threads(),
        "Processors, that is network threads, for all listeners together. More than half the cores"
        " costs CPU per request and gains nothing.", low=1, dynamic=CLUSTER_WIDE, supported=True,
        kafka="3", default_words="half the cores, at least 1, at most 3"),
    Key("num.io.threads", INT, 8, "Request handler threads, which also wait for the disk.", low=1,
        dynamic=CLUSTER_WIDE, supported=True),
    Key("background.threads", INT, 10,
        "Threads for background work such as removing files. kbroker has one background thread that"
        " works in small steps, whatever the value is.", low=1, dynamic=CLUSTER_WIDE),
    Key("queued.max.requests", INT, 500,
        "Requests that may wait for a handler. At the bound no further request is read.", low=1,
        supported=True),
    Key("queued.max.request.bytes", LONG, -1,
        "Bytes of requests that may wait for a handler; -1 sets no bound. At the bound no further"
        " request is read.", supported=True),
    Key("queued.max.response.bytes", LONG, -1,
        "Bytes of answers of all connections together that may wait in memory because their"
        " clients do not read them; -1: an eighth of the memory that the process may use. Beyond"
        " half of it a connection with such answers is not read, beyond it those are closed whose"
        " clients have taken nothing for longest; one that alone has such answers is left.",
        check=_check_response_bytes, check_words="-1, or 1048576 or more", supported=True,
        kafka="-"),
    Key("socket.request.max.bytes", INT, 104_857_600,
        "The largest request frame; a connection that announces a larger one is closed.", low=1,
        supported=True),
    Key("socket.send.buffer.bytes", INT, 102_400,
        "SO_SNDBUF of accepted sockets; -1 leaves it to the kernel's own tuning.", low=1,
        also=(-1,), supported=True),
    Key("socket.receive.buffer.bytes", INT, 102_400,
        "SO_RCVBUF of accepted sockets; -1 leaves it to the kernel's own tuning.", low=1,
        also=(-1,), supported=True),
    Key("socket.listen.backlog.size", INT, 1_024,
        "Connections that the kernel holds ready before the Acceptor takes them, at most its "
        "net.core.somaxconn. Clients come in bursts, after a restart above all, and one that finds "
        "no place waits a second until it asks again; a place costs memory only while it is taken.",
        low=1, supported=True, kafka="50"),
    Key("socket.connection.setup.timeout.ms", LONG, 10_000,
        "How long the broker waits for a connection that it opens itself, at first."),
    Key("socket.connection.setup.timeout.max.ms", LONG, 30_000,
        "The longest wait for a connection that the broker opens, after repeated failures."),
    Key("connections.max.idle.ms", LONG, 600_000,
        "A connection without traffic for this long is closed.", supported=True),
    Key("max.connections", INT, INT_MAX,
        "Connections the broker holds at once; further ones are closed at once, but for those of a "
        "listener for brokers alone.", low=0,
        dynamic=CLUSTER_WIDE, supported=True),
    Key("max.connections.per.ip", INT, INT_MAX,
        "Connections from one address; further ones are closed at once.", low=0,
        dynamic=CLUSTER_WIDE, supported=True),
    Key("max.connections.per.ip.overrides", STRING, "",
        "Exceptions to max.connections.per.ip, as host:count pairs.", check=_check_ip_overrides,
        check_words="pairs host:count separated by commas", dynamic=CLUSTER_WIDE, supported=True),
    Key("max.connection.creation.rate", INT, INT_MAX,
        "Connections accepted per second; acceptors wait when there are more. With several"
        " listeners that between brokers does not count.", low=0,
        dynamic=CLUSTER_WIDE, supported=True),
    Key("connection.failed.authentication.delay.ms", INT, 100,
        "How long the answer to a failed authentication is held before it is sent and the"
        " connection closed; the connection is not read meanwhile.", low=0, supported=True),
    Key("kbroker.authentication.timeout.ms", INT, 30_000,
        "How long a client may take from its connection to the end of its TLS handshake and its"
        " authentication with SASL; later it is closed.",
        low=1, high=600_000, supported=True, kafka="-"),
    Key("kbroker.max.unauthenticated.connections", INT, 1_000,
        "Connections in a TLS handshake or an authentication with SASL; of more one is closed: of"
        " two drawn at random, the one whose address has more of them.",
        low=1, supported=True, kafka="-"),
    Key("kbroker.max.unauthenticated.connections.per.ip", INT, 100,
        "Of those, connections from one address, or from one /64 of IPv6; further ones are"
        " closed at once.", low=1,
        supported=True, kafka="-"),
    Key("request.timeout.ms", INT, 30_000,
        "How long the broker waits for the answer to a request of its own.", supported=True),
    Key("max.request.partition.size.limit", INT, 2_000,
        "The most partitions that one DescribeTopicPartitions answer holds.", low=1,
        supported=True),
    Key("channel.pipelining.enable", BOOLEAN, True,
        "True: a connection is read on while its produces wait for their followers, and produces"
        " that have arrived one after another are taken, appended and answered together; answers"
        " leave in order. False: one request at a time, as Apache Kafka does.", supported=True,
        kafka="-"),
    Key("channel.pipelining.max.requests", INT, 256,
        "Requests of one connection that may wait for their answers; at the bound the connection"
        " stays muted.", low=1, high=65_536, supported=True, kafka="-"),
    Key("channel.pipelining.max.bytes", LONG, 16_777_216,
        "Bytes of requests of one connection that may wait for their answers, a request counting"
        " for 2 KB at least; at the bound the connection stays muted.", low=1, supported=True,
        kafka="-"),
    Key("channel.pipelining.total.bytes", LONG, 268_435_456,
        "Bytes of requests of all connections together that may wait for their answers; at the"
        " bound every connection is served one request at a time.", low=1, supported=True,
        kafka="-"),
    Key("logging.format", STRING, "text",
        "How log lines are written to standard error: for people or as JSON, one object a line.",
        choices=("text", "json"), supported=True, kafka="-"),
    Key("logging.file", STRING, None,
        "The file that the log is written to. It is opened again once another program has renamed"
        " it, and at SIGUSR1. Unset: standard error.", supported=True, kafka="-"),
    Key("admin.listeners", LIST, default_admin_listeners(),
        "Where metrics and health are served over HTTP: http://host:port or https://host:port,"
        " several separated by commas; none, or nothing: nowhere. https has the keys ssl.* as a"
        " listener has them, with the prefix listener.name.admin. before those without. There is no"
        " authentication but ssl.client.auth: keep it on loopback or on a network that you trust."
        " Where the default port is taken, a broker runs without.",
        check_words="entries http://host:port or https://host:port separated by commas, or none",
        supported=True, kafka="-"),
    Key("admin.console.enable", STRING, "auto",
        "Whether the admin port has a console for browsers, at /ui: auto: for visitors of this"
        " machine, and under the names of admin.console.hosts; true: at every address of"
        " admin.listeners; false: nowhere.",
        choices=("auto", "true", "false"), ignore_case=True, supported=True, kafka="-"),
    Key("admin.console.hosts", LIST, (),
        "Names under which browsers may ask for the console, besides addresses, localhost and the"
        " name of this machine: that of a proxy, or of this machine in a network.",
        supported=True, kafka="-"),
    Key("admin.console.messages", STRING, "auto",
        "Which of a message the console has: on: all of it; keys: no values and headers; off:"
        " nothing; auto: on for visitors of this machine, else off.",
        choices=("auto", "on", "keys", "off"), ignore_case=True, supported=True, kafka="-"),
    Key("admin.console.write", BOOLEAN, False,
        "True: the console also creates, changes and deletes, with the rights of its visitor.",
        supported=True, kafka="-"),
)  # fmt: skip
