"""BrokerConfig: precedence, warnings, contradictions, secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, ConfigSource
from kbroker.config.dynamic import with_overrides
from kbroker.config.sources import environment_key, read_environment
from kbroker.errors import ConfigError, UsageError
from kbroker.peer.client_properties import login_of


def _file(directory: Path, text: str) -> str:
    path = directory / "server.properties"
    path.write_text(text, encoding="latin-1")
    return str(path)


def test_defaults() -> None:
    config = BrokerConfig.load()
    assert config["num.io.threads"] == 8
    assert config["group.initial.rebalance.delay.ms"] == 0
    assert config["channel.pipelining.enable"] is True
    assert config["channel.pipelining.max.requests"] == 256
    assert config["queued.max.request.bytes"] == -1
    assert 1 <= config["num.network.threads"] <= 3
    assert config.node_id == 1
    assert config.source("num.io.threads") is ConfigSource.DEFAULT_CONFIG
    assert config.origin("num.io.threads") == "default"
    assert config.warnings == ()


def test_precedence(tmp_path: Path) -> None:
    file = _file(
        tmp_path,
        "num.io.threads=2\nqueued.max.requests=2\nnum.partitions=2\nmessage.max.bytes=2\n",
    )
    environ = {
        "KAFKA_NUM_IO_THREADS": "3",
        "KAFKA_QUEUED_MAX_REQUESTS": "3",
        "KAFKA_NUM_PARTITIONS": "3",
        "KBROKER_NUM_IO_THREADS": "4",
        "KBROKER_QUEUED_MAX_REQUESTS": "4",
    }
    config = BrokerConfig.load(file, environ, ["num.io.threads=5"])
    assert config["num.io.threads"] == 5
    assert config["queued.max.requests"] == 4
    assert config["num.partitions"] == 3
    assert config["message.max.bytes"] == 2
    assert config.origin("num.io.threads") == "--override"
    assert config.origin("queued.max.requests") == "environment, KBROKER_QUEUED_MAX_REQUESTS"
    assert config.origin("message.max.bytes") == file
    assert config.source("message.max.bytes") is ConfigSource.STATIC_BROKER_CONFIG


# CVE-2024-31141: providers that read files and the environment, for any who may write a setting.
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_PROVIDERS = {
    "config.providers": "env,file,dir",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
}


@pytest.mark.parametrize("text", ["${env:HOME}", "${file:%s:x}", "${dir:%s:server.properties}"])
def test_config_providers_are_refused_and_values_stay_texts(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file, in the environment, at run time, and in a client's file."""
    place = tmp_path / "server.properties"
    text = text.replace("%s", str(tmp_path if "dir" in text else place))
    monkeypatch.setenv("HOME", "of-the-environment")
    settings = {**_PROVIDERS, "x": "of-the-file", "broker.rack": text, "ssl.key.password": text}
    file = _file(tmp_path, "".join(f"{name}={value}\n" for name, value in settings.items()))
    environ = {"HOME": "of-the-environment", "KBROKER_NUM_PARTITIONS": "2"}
    with pytest.raises(ConfigError, match=r"providers=env,file,dir .*Java classes"):
        BrokerConfig.load(file, environ)
    config = BrokerConfig.load(file, environ, ["config.providers="])
    assert config["broker.rack"] == config["ssl.key.password"] == text
    name = "listener.name.plaintext.ssl.key.password"
    config, errors = with_overrides(config, _PROVIDERS, {name: text})
    assert [each.cause.partition("=")[0] for each in errors] == ["config.providers"]
    assert config[name] == text and not config["config.providers"]
    client = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{_PLAIN_MODULE} required username="a" password="{text}";',
    }
    with pytest.raises(ConfigError, match=r"client.properties: config.providers=env,file,dir"):
        login_of("client.properties", {**_PROVIDERS, **client})
    login = login_of("client.properties", {**_PROVIDERS, **client, "config.providers": ""})
    assert login is not None and login.password == text


def test_file_with_every_escape(tmp_path: Path) -> None:
    file = _file(
        tmp_path,
        "# comment\n! comment\nbroker.rack = \\u0061\\\n   b\nlog.dirs:/data/a,/data/b\n"
        "num.partitions 3\nnum.partitions=4\n",
    )
    config = BrokerConfig.load(file)
    assert config["broker.rack"] == "ab"
    assert config.log_dirs == ("/data/a", "/data/b")
    assert config["num.partitions"] == 4


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        BrokerConfig.load(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="cannot read"):
        BrokerConfig.load(str(tmp_path))
    with pytest.raises(ConfigError, match="no properties file"):
        BrokerConfig.load(_file(tmp_path, "broker.rack=\\u00zz\n"))
    with pytest.raises(ConfigError, match="more than"):
        BrokerConfig.load(_file(tmp_path, "#" * 1_048_577))


def test_the_image_rule() -> None:
    assert environment_key("NUM_IO_THREADS") == "num.io.threads"
    assert environment_key("A__B") == "a_b"
    assert environment_key("A___B") == "a-b"
    assert environment_key("A____B") == "a-.b"


def test_variables_that_are_no_settings() -> None:
    environ = {
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_OPTS": "",
        "KAFKA_JMX_PORT": "9999",
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
        "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
        "KAFKA_SERVICE_HOST": "10.0.0.1",
        "KAFKA_UI_SERVICE_PORT_HTTP": "80",
        "KBROKER_DEBUG": "1",
        "KBROKER_TEST_BOOTSTRAP": "127.0.0.1:9092",
        "KAFKA_": "x",
        "HOME": "/root",
    }
    assert read_environment(environ) == {}


def test_unknown_key_is_a_warning_with_the_nearest_name() -> None:
    config = BrokerConfig.load(overrides=["num.io.thread=2", "zzz=1"])
    assert config.warnings == (
        "unknown key num.io.thread (--override) did you mean num.io.threads?",
        "unknown key zzz (--override)",
    )
    assert config["num.io.threads"] == 8


def test_keys_without_effect_share_one_warning(tmp_path: Path) -> None:
    file = _file(tmp_path, "remote.log.reader.threads=2\nport=9092\nprocess.roles=broker\n")
    (warning,) = BrokerConfig.load(file).warnings
    for part in ("remote.log.reader.threads", "port (use listeners)", "process.roles"):
        assert part in warning


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("num.io.threads=0", ["num.io.threads='0'", "--override", "an integer of at least 1"]),
        ("compression.type=brotli", ["compression.type='brotli'", "one of uncompressed"]),
        ("log.dirs=", ["log.dirs", "name a directory"]),
        ("auto.create.topics.enable=maybe", ["true or false"]),
        ("compression.gzip.level=0", ["an integer from 1 to 9, or -1"]),
    ],
)
def test_bad_value_is_one_line(setting: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(overrides=[setting])
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_secrets_are_never_printed() -> None:
    config = BrokerConfig.load(overrides=["ssl.keystore.password=hunter2"])
    assert config["ssl.keystore.password"] == "hunter2"
    assert "hunter2" not in repr(config)
    assert "hunter2" not in "".join(config.warnings)


def test_override_without_value() -> None:
    with pytest.raises(UsageError):
        BrokerConfig.load(overrides=["num.io.threads"])


@pytest.mark.parametrize(
    ("settings", "node_id"),
    [
        ([], 1),
        (["node.id=0"], 0),
        (["broker.id=0"], 0),
        (["broker.id=7", "node.id=7"], 7),
        (["broker.id=-1", "node.id=7"], 7),
        (["broker.id=-1"], 1),
        (["node.id=2147483647"], 2147483647),
    ],
)
def test_node_id(settings: list[str], node_id: int) -> None:
    config = BrokerConfig.load(overrides=settings)
    assert config.node_id == node_id
    assert config["broker.id"] == node_id


def test_contradictions() -> None:
    with pytest.raises(ConfigError, match="differ"):
        BrokerConfig.load(overrides=["node.id=1", "broker.id=2"])
    with pytest.raises(ConfigError, match="never admit"):
        BrokerConfig.load(overrides=["queued.max.request.bytes=1000"])
    BrokerConfig.load(overrides=["queued.max.request.bytes=0"])
    for key in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        with pytest.raises(ConfigError, match=f"{key}=0 would keep nothing"):
            BrokerConfig.load(overrides=[f"{key}=0"])
    BrokerConfig.load(overrides=["log.retention.hours=0", "log.retention.ms=5"])
    with pytest.raises(ConfigError, match="longer than"):
        BrokerConfig.load(overrides=["replica.lag.time.max.ms=400"])


def test_empty_value_of_an_optional_key_means_unset() -> None:
    config = BrokerConfig.load(environ={"KAFKA_ADVERTISED_LISTENERS": "", "KAFKA_BROKER_RACK": " "})
    assert config["advertised.listeners"] is None
    assert config["broker.rack"] is None
    assert config.source("broker.rack") is ConfigSource.DEFAULT_CONFIG


def test_with_values_layers() -> None:
    static = BrokerConfig.load(overrides=["num.io.threads=2"])
    dynamic = static.with_values({"num.io.threads": "3"}, ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert static["num.io.threads"] == 2
    assert dynamic["num.io.threads"] == 3
    assert dynamic.source("num.io.threads") is ConfigSource.DYNAMIC_BROKER_CONFIG
    weaker = static.with_values(
        {"num.partitions": "5"}, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, "a caller"
    )
    assert weaker["num.partitions"] == 5
    assert weaker.origin("num.partitions") == "a caller"
    with pytest.raises(ConfigError, match=r"did you mean num\.io\.threads"):
        static.with_values({"num.io.thread": "3"})


def test_unknown_name_is_the_programs_mistake() -> None:
    with pytest.raises(KeyError):
        BrokerConfig.load()["no.such.key"]


def test_data_directory_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    assert BrokerConfig.load().log_dirs == ("/home/user/.local/share/kbroker",)
