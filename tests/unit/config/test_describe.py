"""DescribeConfigs' view: every key, Kafka's numbers, synonyms in order, secrets hidden."""

from __future__ import annotations

from kbroker.config import (
    BROKER_KEYS,
    TOPIC_KEYS,
    BrokerConfig,
    ConfigEntry,
    ConfigSource,
    ConfigType,
    TopicConfig,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_topic,
)

DYNAMIC_TOPIC, DYNAMIC_BROKER, STATIC, DEFAULT = 1, 2, 4, 5


def _broker(*overrides: str) -> dict[str, ConfigEntry]:
    return {e.name: e for e in describe_broker(BrokerConfig.load(overrides=overrides))}


def _topic(own: dict[str, str], *overrides: str) -> dict[str, ConfigEntry]:
    config = TopicConfig(BrokerConfig.load(overrides=overrides), own)
    return {entry.name: entry for entry in describe_topic(config)}


def test_every_key_is_listed_in_order() -> None:
    names = [entry.name for entry in describe_broker(BrokerConfig.load())]
    assert names == sorted(name for name, key in BROKER_KEYS.items() if not key.internal)
    assert list(_topic({})) == sorted(TOPIC_KEYS)


def test_a_default_of_its_own_in_a_cluster() -> None:
    name, cluster = "offsets.topic.replication.factor", "zookeeper.connect=localhost:2181"
    for overrides, value, synonyms in (
        ((), "1", [(name, "1", DEFAULT)]),
        ((cluster,), "3", [(name, "3", DEFAULT)]),
        ((cluster, f"{name}=2"), "2", [(name, "2", STATIC), (name, "3", DEFAULT)]),
    ):
        entry = _broker(*overrides)[name]
        assert (entry.value, entry.synonyms) == (value, synonyms)


def test_a_default() -> None:
    entry = _broker()["num.io.threads"]
    assert entry == ConfigEntry(
        name="num.io.threads",
        value="8",
        source=DEFAULT,
        read_only=False,
        sensitive=False,
        is_default=True,
        type=ConfigType.INT,
        documentation=BROKER_KEYS["num.io.threads"].help,
        synonyms=[("num.io.threads", "8", DEFAULT)],
    )


def test_a_static_value() -> None:
    entry = _broker("num.io.threads=2")["num.io.threads"]
    assert (entry.value, entry.source, entry.is_default) == ("2", STATIC, False)
    assert entry.synonyms == [("num.io.threads", "2", STATIC), ("num.io.threads", "8", DEFAULT)]


def test_dynamic_before_static() -> None:
    config = BrokerConfig.load(overrides=["num.io.threads=2"]).with_values(
        {"num.io.threads": "3"}, ConfigSource.DYNAMIC_BROKER_CONFIG
    )
    entry = next(e for e in describe_broker(config) if e.name == "num.io.threads")
    assert entry.value == "3"
    assert [synonym[1:] for synonym in entry.synonyms] == [
        ("3", DYNAMIC_BROKER),
        ("2", STATIC),
        ("8", DEFAULT),
    ]


def test_kinds_of_value() -> None:
    entries = _broker("auto.create.topics.enable=false")
    assert entries["auto.create.topics.enable"].value == "false"
    assert entries["log.retention.ms"].value is None
    assert entries["log.retention.ms"].synonyms == []
    assert entries["log.retention.hours"].value == "168"
    assert entries["listeners"].value == "PLAINTEXT://127.0.0.1:9092,PLAINTEXT://[::1]:9092"
    assert entries["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"
    assert entries["log.dirs"].read_only


def test_secrets_are_null() -> None:
    entry = _broker("ssl.keystore.password=hunter2")["ssl.keystore.password"]
    assert entry.sensitive
    assert entry.value is None
    assert [value for _, value, _ in entry.synonyms] == [None]


def test_keys_of_one_listener_are_listed_when_set() -> None:
    entries = _broker("listener.name.x.ssl.keystore.password=hunter2", "node.id=3")
    entry = entries["listener.name.x.ssl.keystore.password"]
    assert entry.sensitive and entry.value is None and entry.source == STATIC
    assert entries["node.id"].value == "3"
    assert entries["broker.id"].value == "3"


def test_the_id_of_the_node_has_two_names() -> None:
    for name in ("node.id", "broker.id"):
        entries = _broker(f"{name}=3")
        assert entries["broker.id"].synonyms == [
            ("broker.id", "3", STATIC),
            ("broker.id", "-1", DEFAULT),
        ]
        assert entries["node.id"].synonyms[0] == ("node.id", "3", STATIC)
        assert entries["node.id"].source == STATIC


# A running Apache Kafka 4.3.0 answers so for the same settings.
def test_topic_values_with_their_synonyms() -> None:
    roll = ["log.roll.jitter.ms=8", "log.roll.jitter.hours=9"]
    entry = _topic({}, *roll)["segment.jitter.ms"]
    assert (entry.value, entry.source, entry.is_default) == ("8", STATIC, False)
    assert entry.synonyms == [
        ("log.roll.jitter.ms", "8", STATIC),
        ("log.roll.jitter.hours", "9", STATIC),
        ("log.roll.jitter.hours", "0", DEFAULT),
    ]
    entry = _topic({"segment.jitter.ms": "7"}, *roll)["segment.jitter.ms"]
    assert (entry.value, entry.source) == ("7", DYNAMIC_TOPIC)
    assert not entry.read_only
    assert entry.synonyms[0] == ("segment.jitter.ms", "7", DYNAMIC_TOPIC)


def test_a_coarser_key_alone_gives_the_value_and_does_not_show() -> None:
    entry = _topic({}, "log.retention.hours=5")["retention.ms"]
    assert (entry.value, entry.source, entry.synonyms) == ("18000000", DEFAULT, [])
    entry = _topic({"retention.ms": "7"}, "log.retention.minutes=2")["retention.ms"]
    assert entry.synonyms == [("retention.ms", "7", DYNAMIC_TOPIC)]
    entry = _topic({})["retention.ms"]
    assert (entry.value, entry.source, entry.is_default) == ("604800000", DEFAULT, True)
    assert _topic({})["remote.storage.enable"].synonyms == []


def test_groups_have_the_defaults_of_the_broker() -> None:
    config = BrokerConfig.load(overrides=["group.consumer.session.timeout.ms=46000"])
    entries = {entry.name: entry for entry in describe_group(config, {})}
    assert list(entries) == sorted(entries) and len(entries) == 24
    timeout = entries["consumer.session.timeout.ms"]
    assert (timeout.value, timeout.source, timeout.type) == ("46000", STATIC, ConfigType.INT)
    assert timeout.synonyms == [
        ("group.consumer.session.timeout.ms", "46000", STATIC),
        ("group.consumer.session.timeout.ms", "45000", DEFAULT),
    ]
    reset = entries["share.auto.offset.reset"]
    assert (reset.value, reset.synonyms) == ("latest", [(reset.name, "latest", DEFAULT)])
    assert not any(entry.read_only or entry.sensitive for entry in entries.values())


def test_client_metrics_have_defaults_only() -> None:
    found = {e.name: (e.value, e.source, e.synonyms) for e in describe_client_metrics({})}
    assert found == {
        "interval.ms": ("300000", DEFAULT, []),
        "match": ("", DEFAULT, []),
        "metrics": ("", DEFAULT, []),
    }
