"""Settings made at run time: of one broker, of all, of groups, client metrics and loggers.

Kept apart from the families of their APIs, since the broker's own settings disturb other cases:
these cases have a broker of their own and are held one by one. Each leaves the broker as it found
it. Effects of a change are read back once DescribeConfigs returns them, see `_configs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._configs import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    LOGGER,
    MARKER,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    Change,
    alter,
    describe,
    first_of_each_key,
    incremental,
    overrides,
    own_settings,
)
from tests.parity.cases.describe_configs import OF_THIS_START
from tests.parity.requests import build
from tests.parity.talk import Talk

THREADS = "num.io.threads"
LEVELS = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")

book = Book(setup="altered")
cases = book.cases


_marks: WeakKeyDictionary[Talk, int] = WeakKeyDictionary()


# Of every start anew, or set by Apache Kafka itself.
OTHERWISE_SET = OF_THIS_START | {"min.insync.replicas"}


def settle(talk: Talk) -> None:
    """Wait until every change before this one shows: a topic's comes after them."""
    name, count = talk.name("mark"), _marks.get(talk, 0) + 1
    if count == 1:
        talk.topic("mark")
    _marks[talk] = count
    answer = talk.quietly(incremental(1, (TOPIC, name, [(MARKER, SET, str(count))])))
    if answer.responses[0].error_code.value:
        raise AssertionError(f"no mark was set: {answer}")
    talk.until(lambda: own_settings(talk, name).get(MARKER) == str(count))


@contextmanager
def as_before(talk: Talk) -> Iterator[None]:
    """Nothing is set for the broker or for all of them, but for Apache Kafka's own settings."""
    try:
        yield
    finally:
        settle(talk)
        for name in ("1", ""):
            (result,) = talk.quietly(describe(4, BROKER, name)).results
            level = 2 if name else 3
            own = [c.name for c in result.configs if c.config_source == level]
            gone: list[Change] = [(key, DELETE, None) for key in own if key not in OTHERWISE_SET]
            answer = talk.quietly(incremental(1, (BROKER, name, gone)))
            if answer.responses[0].error_code.value:
                raise AssertionError(f"the broker is not as before: {answer}")
        settle(talk)


def read(talk: Talk, kind: int, name: str, keys: list[str] | None = None) -> None:
    def own(data: Any) -> Any:
        for result in data["results"]:
            result["configs"] = [c for c in result["configs"] if c["name"] not in OTHERWISE_SET]
        return data

    talk.ask(describe(4, kind, name, keys), view=own)


# --- brokers --------------------------------------------------------------------------------------

BROKER_VALUES: Mapping[str, Change] = {
    f"{key} = {'a long text' if len(value) > 50 else repr(value)}": (key, SET, value)
    for key, value in (
        *(
            (THREADS, text)
            for text in ("8", "4", "16", " 9 ", "3", "17", "0", "-1", "", "x", "8.0")
        ),
        *(("num.network.threads", text) for text in ("0", "x")),
        *(("num.replica.fetchers", text) for text in ("2", "3", "0")),
        *(("background.threads", text) for text in ("20", "21", "5", "4", "0")),
        *(("num.recovery.threads.per.data.dir", text) for text in ("1", "2", "0")),
        *(("log.cleaner.threads", text) for text in ("2", "3", "0")),
        *(("log.retention.ms", text) for text in ("-1", "0", "1", "-2", "x", "", "9" * 20)),
        *(("log.retention.bytes", text) for text in ("-1", "0", "5")),
        *(("log.segment.bytes", text) for text in ("1048575", "1048576", "2147483648")),
        *(("log.roll.ms", text) for text in ("0", "1")),
        *(("log.cleanup.policy", text) for text in ("compact", "delete , compact", "", "zz")),
        *(("log.preallocate", text) for text in ("true", " TRUE ", "yes", "")),
        *(("compression.type", text) for text in ("gzip", " zstd ", "GZIP", "")),
        *(("log.message.timestamp.type", text) for text in ("LogAppendTime", "x")),
        *(("log.cleaner.min.cleanable.ratio", text) for text in (".25", "2")),
        *(("message.max.bytes", text) for text in ("0", "-1", "2000000")),
        *(("unclean.leader.election.enable", text) for text in ("true", "x")),
        *(("max.connections", text) for text in ("1000", "-1", "x")),
        *(("max.connections.per.ip", text) for text in ("1000", "0", "-1")),
        *(("max.connections.per.ip.overrides", text) for text in ("1.2.3.4:5", "", "x")),
        *(("max.connection.creation.rate", text) for text in ("1", "5")),
        *(("leader.replication.throttled.rate", text) for text in ("-1", "0", "5")),
        *(("transaction.partition.verification.enable", text) for text in ("false", "x")),
        *(("producer.id.expiration.ms", text) for text in ("0", "5000")),
        *(("metric.reporters", text) for text in ("",)),
        *(
            (name, "1")
            for name in (
                *("nope", "", "node.id", "broker.id", "num.partitions", "log.retention.hours"),
                *("queued.max.requests", "log.dirs", "offsets.topic.num.partitions", "broker.rack"),
                *("default.replication.factor", "auto.create.topics.enable", "retention.ms"),
                *("group.initial.rebalance.delay.ms", "authorizer.class.name", "process.roles"),
                "leader.replication.throttled.replicas",
            )
        ),
        *(
            (f"ssl.{name}", "x")
            for name in ("keystore.location", "key.password", "truststore.type")
        ),
        *((f"listener.name.plaintext.ssl.{name}", "x") for name in ("key.password",)),
        ("listener.name.plaintext.max.connections", "50"),
        ("sasl.kerberos.service.name", "x"),
        ("advertised.listeners", "PLAINTEXT://x:1"),
    )
}


@book.case("a broker's value", over=BROKER_VALUES, alone=True)
def broker_value(talk: Talk, change: Change) -> None:
    key = change[0]
    with as_before(talk):
        talk.ask(incremental(1, (BROKER, "1", [change])))
        settle(talk)
        read(talk, BROKER, "1", [key])


# The possible values are the same for one broker and for all: here one of each key.
@book.case("a value for every broker", over=first_of_each_key(BROKER_VALUES), alone=True)
def default_value(talk: Talk, change: Change) -> None:
    key = change[0]
    with as_before(talk):
        talk.ask(incremental(1, (BROKER, "", [change])))
        settle(talk)
        read(talk, BROKER, "", [key])
        read(talk, BROKER, "1", [key])


OPERATIONS: Mapping[str, list[Change]] = {
    "nothing": [],
    "several": [(THREADS, SET, "9"), ("log.retention.ms", SET, "700000"), ("nope", SET, "1")],
    "a good one and a fixed one": [(THREADS, SET, "9"), ("node.id", SET, "1")],
    "a good one and a bad one": [(THREADS, SET, "9"), ("log.retention.ms", SET, "x")],
    "delete what is not set": [(THREADS, DELETE, None), ("nope", DELETE, None)],
    "delete a fixed one": [("node.id", DELETE, None)],
    "delete with a value": [(THREADS, DELETE, "x")],
    "append": [("log.cleanup.policy", APPEND, "compact")],
    "append what is there": [("log.cleanup.policy", APPEND, "delete")],
    "append a bad part": [("log.cleanup.policy", APPEND, "zz")],
    "append to a number": [(THREADS, APPEND, "9")],
    "append to an unknown key": [("nope", APPEND, "9")],
    "subtract": [("log.cleanup.policy", SUBTRACT, "delete")],
    "subtract what is not there": [("log.cleanup.policy", SUBTRACT, "compact")],
    "subtract from a number": [(THREADS, SUBTRACT, "9")],
    "null": [(THREADS, SET, None)],
    "null of an unknown key": [("nope", SET, None)],
    "a key twice": [(THREADS, SET, "9"), (THREADS, DELETE, None)],
    "operation 4": [(THREADS, 4, "9")],
    "operation -1 of an unknown key": [("nope", -1, "9")],
}


@book.case("a broker", versions=[1], over=OPERATIONS, alone=True)
def broker_operations(talk: Talk, version: int, changes: list[Change]) -> None:
    keys = [key for key, _, _ in changes]
    with as_before(talk):
        talk.ask(incremental(version, (BROKER, "1", changes)))
        settle(talk)
        read(talk, BROKER, "1", keys or [THREADS])


@book.case("a broker, checking only", over=OPERATIONS, alone=True)
def broker_checking(talk: Talk, changes: list[Change]) -> None:
    with as_before(talk):
        talk.ask(incremental(1, (BROKER, "1", changes), validate_only=True))
        settle(talk)
        read(talk, BROKER, "1", [key for key, _, _ in changes] or [THREADS])


@book.case("every broker", versions=[1], over=OPERATIONS, alone=True)
def default_operations(talk: Talk, version: int, changes: list[Change]) -> None:
    with as_before(talk):
        talk.ask(incremental(version, (BROKER, "", changes)))
        settle(talk)
        read(talk, BROKER, "")
        read(talk, BROKER, "1", [key for key, _, _ in changes] or [THREADS])


@book.case("one broker's over every broker's", alone=True)
def layers(talk: Talk) -> None:
    keys = [THREADS, "log.retention.ms", "log.cleanup.policy", "nope"]
    with as_before(talk):
        every = [(THREADS, SET, "10"), ("log.retention.ms", SET, "700000"), ("nope", SET, "2")]
        talk.ask(incremental(1, (BROKER, "", every)))
        talk.ask(incremental(1, (BROKER, "1", [(THREADS, SET, "9"), ("nope", SET, "1")])))
        settle(talk)
        read(talk, BROKER, "1", keys)
        read(talk, BROKER, "")
        talk.ask(incremental(1, (BROKER, "1", [(THREADS, DELETE, None)])))
        settle(talk)
        read(talk, BROKER, "1", keys)


@book.case("what topics have of it", alone=True)
def topics_follow(talk: Talk) -> None:
    own = talk.topic("own", configs={"retention.ms": "5000", "compression.type": "lz4"})
    plain = talk.topic("plain")
    keys = ["retention.ms", "compression.type", "cleanup.policy", "preallocate"]
    changes: list[Change] = [
        ("log.retention.ms", SET, "700000"),
        ("compression.type", SET, " gzip "),
        ("log.cleanup.policy", APPEND, "compact"),
        ("log.preallocate", SET, "true"),
    ]
    with as_before(talk):
        talk.ask(incremental(1, (BROKER, "", changes)))
        talk.ask(incremental(1, (BROKER, "1", [("log.retention.ms", SET, "600000")])))
        settle(talk)
        for name in (own, plain):
            read(talk, TOPIC, name, keys)
        talk.ask(incremental(1, (TOPIC, plain, [("cleanup.policy", SUBTRACT, "delete")])))
        overrides(talk, plain)


@book.case("all settings of a broker at once", versions=range(3), alone=True)
def replaced(talk: Talk, version: int) -> None:
    with as_before(talk):
        talk.quietly(incremental(1, (BROKER, "1", [(THREADS, SET, "9"), ("nope", SET, "1")])))
        settle(talk)
        talk.ask(alter(version, (BROKER, "1", [("log.retention.ms", SET, "700000")])))
        settle(talk)
        read(talk, BROKER, "1", [THREADS, "log.retention.ms", "nope"])
        for change in (("node.id", SET, "1"), (THREADS, SET, "x"), (THREADS, SET, None)):
            talk.ask(alter(version, (BROKER, "1", [change])))
        settle(talk)
        read(talk, BROKER, "1", [THREADS, "log.retention.ms", "nope"])
        talk.ask(alter(version, (BROKER, "1", [])))
        settle(talk)
        read(talk, BROKER, "1", [THREADS, "log.retention.ms", "nope"])


@book.case("resources of every kind in one request", versions=range(2), alone=True)
def every_kind(talk: Talk, version: int) -> None:
    name = talk.topic()
    with as_before(talk):
        talk.ask(
            incremental(
                version,
                (BROKER, "1", [(THREADS, SET, "9")]),
                (TOPIC, name, [("retention.ms", SET, "5")]),
                (GROUP, talk.name("g"), [("share.isolation.level", SET, "read_committed")]),
                (BROKER, "", [("node.id", SET, "9")]),
                (METRICS, talk.name("m"), [("interval.ms", SET, "5000")]),
                (LOGGER, "1", [("no.such.logger", SET, "INFO")]),
                (BROKER, "2", [(THREADS, SET, "9")]),
            )
        )
        settle(talk)
        read(talk, BROKER, "1", [THREADS])
        read(talk, GROUP, talk.name("g"), ["share.isolation.level"])
        read(talk, METRICS, talk.name("m"))
        overrides(talk, name)


# --- groups and client metrics ------------------------------------------------------------------

GROUP_VALUES: Mapping[str, Change] = {
    f"{key} = {value!r}": (key, SET, value)
    for key, value in (
        *(("consumer.session.timeout.ms", text) for text in ("45000", "60000", "44999", "60001")),
        *(("consumer.session.timeout.ms", text) for text in ("", "x", " 50000 ", "0", "-1")),
        *(("consumer.heartbeat.interval.ms", text) for text in ("5000", "15000", "4999", "15001")),
        *(("consumer.assignment.interval.ms", text) for text in ("0", "15000", "15001", "-1")),
        *(("consumer.assignor.offload.enable", text) for text in ("true", "x")),
        *(("share.session.timeout.ms", text) for text in ("45000", "60000", "44999", "60001")),
        *(("share.heartbeat.interval.ms", text) for text in ("5000", "4999", "15001")),
        *(("share.record.lock.duration.ms", text) for text in ("15000", "14999", "60001", "1")),
        *(("share.delivery.count.limit", text) for text in ("2", "10", "1", "11")),
        *(("share.partition.max.record.locks", text) for text in ("100", "4000", "99", "4001")),
        *(("share.auto.offset.reset", text) for text in ("earliest", "latest", "LATEST", "x", "")),
        *(
            ("share.auto.offset.reset", f"by_duration:{text}")
            for text in ("PT1H", "P1DT2H3M4S", "-PT1H", "x", "", "PT0.5S")
        ),
        *(("share.isolation.level", text) for text in ("read_committed", "READ_COMMITTED", "")),
        *(("share.renew.acknowledge.enable", text) for text in ("false", "x")),
        *(("streams.session.timeout.ms", text) for text in ("45000", "44999", "60001")),
        *(("streams.heartbeat.interval.ms", text) for text in ("5000", "4999", "15001")),
        *(("streams.num.standby.replicas", text) for text in ("0", "2", "3", "-1")),
        *(("streams.initial.rebalance.delay.ms", text) for text in ("0", "-1")),
        *(
            (name, "1")
            for name in ("nope", "", "group.consumer.session.timeout.ms", "retention.ms")
        ),
    )
}


@book.case("a group's value", over=GROUP_VALUES)
def group_value(talk: Talk, change: Change) -> None:
    name = talk.name("g")
    talk.ask(incremental(1, (GROUP, name, [change])))
    settle(talk)
    read(talk, GROUP, name, [change[0]])


METRICS_VALUES: Mapping[str, Change] = {
    f"{key} = {value!r}": (key, SET, value)
    for key, value in (
        *(("interval.ms", text) for text in ("100", "3600000", "99", "3600001", "", "x", " 200 ")),
        *(("metrics", text) for text in ("", "*", "a.,b.", " a. , b. ", "a.,a.", ",")),
        *(
            ("match", text)
            for text in (
                *("", "client_id=x", "client_id=a.*,client_source_address=127.*", "client_id"),
                *("nope=x", "client_id=[", "=x", "client_id=", "CLIENT_ID=x", " client_id = x "),
                *("client_id=a,client_id=b", "client_software_version=4.*", "client_id=a=b"),
            )
        ),
        *((name, "1") for name in ("nope", "", "interval")),
    )
}


@book.case("client metrics' value", over=METRICS_VALUES)
def metrics_value(talk: Talk, change: Change) -> None:
    name = talk.name("m")
    talk.ask(incremental(1, (METRICS, name, [change])))
    settle(talk)
    read(talk, METRICS, name)


OTHERS: Mapping[str, tuple[int, Change, Change]] = {
    "a group": (
        GROUP,
        ("consumer.session.timeout.ms", SET, "50000"),
        ("share.isolation.level", SET, "read_committed"),
    ),
    "client metrics": (METRICS, ("interval.ms", SET, "5000"), ("metrics", SET, "a.,b.")),
}


@book.case("changes of", versions=range(2), over=OTHERS)
def others(talk: Talk, version: int, what: tuple[int, Change, Change]) -> None:
    kind, first, second = what
    name = talk.name("x")
    steps: list[list[Change]] = [
        [first, second],
        [],
        [(first[0], APPEND, "1")],
        [(second[0], SUBTRACT, "a.")],
        [("nope", APPEND, "1")],
        [(first[0], SET, None)],
        [(first[0], DELETE, None), ("nope", DELETE, None)],
        [first, first],
        [(first[0], 4, "1")],
        [(second[0], DELETE, "x")],
    ]
    for changes in steps:
        talk.ask(incremental(version, (kind, name, changes)))
        settle(talk)
        read(talk, kind, name)
    talk.ask(incremental(version, (kind, name, [first]), validate_only=True))
    settle(talk)
    read(talk, kind, name)


@book.case("all settings at once of", versions=range(3), over=OTHERS)
def others_replaced(talk: Talk, version: int, what: tuple[int, Change, Change]) -> None:
    kind, first, second = what
    name = talk.name("x")
    for changes in ([first], [second], [("nope", SET, "1")], [(first[0], SET, None)], []):
        talk.ask(alter(version, (kind, name, changes)))
        settle(talk)
        read(talk, kind, name)


@book.case("names of", over={"a group": GROUP, "client metrics": METRICS})
def names(talk: Talk, kind: int) -> None:
    _, first, _ = OTHERS["a group" if kind == GROUP else "client metrics"]
    for name in ("a b", "a/b", ".", "..", "%2F", "\u00e9", "a" * 250, "<default>"):
        full = talk.name(name)
        talk.ask(incremental(1, (kind, full, [first])))
        settle(talk)
        read(talk, kind, full, [first[0]])


@book.case("what has settings is listed", versions=range(2))
def listed(talk: Talk, version: int) -> None:
    group, metrics = talk.name("g"), talk.name("m")

    def own(data: Any) -> Any:
        found = data["config_resources"]
        data["config_resources"] = [r for r in found if talk.mine(r["resource_name"])]
        return data

    def ask() -> None:
        kinds = [GROUP, METRICS] if version else []
        asked = build(ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=kinds)
        talk.ask(asked, view=own)

    _, first, _ = OTHERS["a group"]
    talk.quietly(incremental(1, (GROUP, group, [first])))
    talk.quietly(incremental(1, (METRICS, metrics, [("interval.ms", SET, "5000")])))
    settle(talk)
    ask()
    talk.quietly(incremental(1, (GROUP, group, [(first[0], DELETE, None)])))
    talk.quietly(incremental(1, (METRICS, metrics, [("interval.ms", DELETE, None)])))
    settle(talk)
    ask()


# --- loggers --------------------------------------------------------------------------------------


def root(talk: Talk) -> None:
    read(talk, LOGGER, "1", ["root"])


@book.case("the root logger's level", versions=[1], over={level: level for level in LEVELS})
def level(talk: Talk, version: int, level: str) -> None:
    talk.ask(incremental(version, (LOGGER, "1", [("root", SET, level)]), validate_only=True))


@book.case("the root logger's levels, one after the other", alone=True)
def levels(talk: Talk) -> None:
    for level in (*LEVELS, "INFO"):
        talk.ask(incremental(1, (LOGGER, "1", [("root", SET, level)])))
        root(talk)


LOGGERS: Mapping[str, list[Change]] = {
    **{
        f"level {text!r}": [("root", SET, text)]
        for text in ("info", " INFO", "OFF", "", "ALL", "5")
    },
    "no such logger": [("no.such.logger", SET, "INFO")],
    "an empty logger": [("", SET, "INFO")],
    "no such logger, no such level": [("no.such.logger", SET, "x")],
    "delete the root's": [("root", DELETE, None)],
    "delete of no logger": [("no.such.logger", DELETE, None)],
    "append": [("root", APPEND, "INFO")],
    "subtract": [("root", SUBTRACT, "INFO")],
    "append to no logger": [("no.such.logger", APPEND, "INFO")],
    "null": [("root", SET, None)],
    "a good one and a bad one": [("root", SET, "ERROR"), ("no.such.logger", SET, "INFO")],
    "the same twice": [("root", SET, "INFO"), ("root", SET, "INFO")],
}


@book.case("a logger", versions=[1], over=LOGGERS, alone=True)
def loggers(talk: Talk, version: int, changes: list[Change]) -> None:
    # The one before may have left another level.
    talk.quietly(incremental(1, (LOGGER, "1", [("root", SET, "INFO")])))
    talk.ask(incremental(version, (LOGGER, "1", changes)))
    root(talk)
    talk.ask(incremental(version, (LOGGER, "1", changes), validate_only=True))
    root(talk)


@book.case(
    "loggers in the older API", versions=range(3), over={"one": [("root", SET, "INFO")], "none": []}
)
def older(talk: Talk, version: int, changes: list[Change]) -> None:
    talk.ask(alter(version, (LOGGER, "1", changes)))
