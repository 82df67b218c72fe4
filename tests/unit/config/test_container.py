"""The start of a broker in our image: variables, mounted files, and what it advertises."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.cli.start import build_config
from kbroker.cli.start_arguments import StartArguments
from kbroker.config import BrokerConfig, container
from kbroker.config.sources import CONTAINER
from kbroker.errors import ConfigError
from tests.support.source_tree import ROOT

IMAGE = ROOT / "deploy" / "image.properties"


class Image:
    """Our image, with places of a test's own."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mounted = directory / "server.properties"
        self.secrets = directory / "secrets"
        self.secrets.mkdir()
        monkeypatch.setattr(container, "MOUNTED", self.mounted)
        monkeypatch.setattr(container, "SECRETS", self.secrets)

    def config(self, *words: StartArguments, **variables: str) -> BrokerConfig:
        (arguments,) = words or (StartArguments(),)
        return build_config(arguments, {CONTAINER: str(IMAGE), **variables})

    def secret(self, name: str, data: bytes) -> str:
        (self.secrets / name).write_bytes(data)
        return name


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    return Image(tmp_path, monkeypatch)


def listeners(config: BrokerConfig) -> list[str]:
    return [str(each) for each in config.listeners.listeners]


def advertised(config: BrokerConfig) -> list[str]:
    return [str(each) for each in config.listeners.advertised]


def test_the_defaults_of_the_image(image: Image) -> None:
    config = image.config()
    assert listeners(config) == ["PLAINTEXT://:9092"]
    assert advertised(config) == ["PLAINTEXT://localhost:9092"]
    assert config.log_dirs == ("/var/lib/kbroker",)
    assert config.origin("log.dirs") == str(IMAGE)


def test_outside_of_a_container_they_do_not_hold() -> None:
    config = build_config(StartArguments(), {"KAFKA_NUM_PARTITIONS": "7"})
    assert advertised(config) == [] and config["num.partitions"] == 7


def test_one_variable_leaves_the_other_defaults(image: Image) -> None:
    config = image.config(KAFKA_NUM_PARTITIONS="7")
    assert config["num.partitions"] == 7 and listeners(config) == ["PLAINTEXT://:9092"]


def test_a_mounted_file_a_variable_and_an_override(image: Image) -> None:
    image.mounted.write_text("num.partitions=2\nnum.io.threads=3\nlog.dirs=/data\n")
    over = StartArguments(overrides=("num.partitions=5",))
    config = image.config(over, KAFKA_NUM_PARTITIONS="4", KAFKA_NUM_IO_THREADS="6")
    assert config["num.partitions"] == 5 and config["num.io.threads"] == 6
    assert config.log_dirs == ("/data",) and config.origin("log.dirs") == str(image.mounted)


def test_a_file_of_the_command_comes_before_the_mounted_one(image: Image, tmp_path: Path) -> None:
    image.mounted.write_text("num.partitions=2\n")
    (tmp_path / "own.properties").write_text("num.io.threads=3\n")
    config = image.config(StartArguments(file=str(tmp_path / "own.properties")))
    assert config["num.io.threads"] == 3 and config["num.partitions"] == 1


def test_log_dir_takes_the_place_of_the_default(image: Image) -> None:
    assert image.config(KAFKA_LOG_DIR="/one").log_dirs == ("/one",)


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ("PLAINTEXT://kafka:29092,SSL://[::1]:29093", ["PLAINTEXT://:29092", "SSL://:29093"]),
        (" PLAINTEXT://kafka:29092 ,", ["PLAINTEXT://:29092"]),
    ],
)
def test_listeners_follow_the_advertised_ones(given: str, bound: list[str]) -> None:
    environ = {CONTAINER: str(IMAGE), "KAFKA_ADVERTISED_LISTENERS": given}
    made = container.settings_of(environ, None, ())
    assert made.defaults["listeners"].text.split(",") == bound
    assert "advertised.listeners" in made.defaults["listeners"].origin


def test_listeners_that_are_given_alone_have_no_default_to_advertise(image: Image) -> None:
    config = image.config(KAFKA_LISTENERS="PLAINTEXT://:29092")
    assert listeners(config) == ["PLAINTEXT://:29092"] and advertised(config) == []


def test_a_port_of_the_command_has_none_either(image: Image) -> None:
    config = image.config(StartArguments(port=29092))
    assert listeners(config) == ["PLAINTEXT://:29092"] and advertised(config) == []


def test_variables_of_a_node_of_apache_kafkas_image(image: Image) -> None:
    """As its documentation has them for one node; its Raft quorum has no effect here."""
    config = image.config(
        KAFKA_NODE_ID="1",
        KAFKA_PROCESS_ROLES="broker,controller",
        KAFKA_LISTENERS="PLAINTEXT://:19092,CONTROLLER://:9093,OUTSIDE://:9092",
        KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://broker:19092,OUTSIDE://localhost:9092",
        KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
        KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=(
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"
        ),
        KAFKA_CONTROLLER_QUORUM_VOTERS="1@localhost:9093",
        KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR="1",
        KAFKA_HEAP_OPTS="-Xmx1g",
        CLUSTER_ID="4L6g3nShT-eMCtK--X86sw",
    )
    assert listeners(config) == ["PLAINTEXT://:19092", "OUTSIDE://:9092"]
    assert [each for each in config.warnings if "unknown" in each or "advertised" in each] == []


VOTERS = "1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093"
COMBINED = {  # one of three nodes of Apache Kafka's image, as its documentation has them
    "KAFKA_NODE_ID": "2",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://:19092,CONTROLLER://:9093,OUTSIDE://:9092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka-2:19092,OUTSIDE://localhost:39092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"
    ),
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": VOTERS,
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "3",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
}


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({}, "controller.quorum.voters"),
        ({"KAFKA_PROCESS_ROLES": "broker"}, "controller.quorum.voters"),
        ({"KAFKA_CONTROLLER_QUORUM_VOTERS": "4@kafka-4:9093"}, "controller.quorum.voters"),
        (
            {
                "KAFKA_CONTROLLER_QUORUM_VOTERS": "",
                "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "kafka-1:9093,kafka-2:9093",
            },
            "controller.quorum.bootstrap.servers",
        ),
        (
            {
                "KAFKA_CONTROLLER_QUORUM_VOTERS": "",
                "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "kafka-1:9093",
                "KAFKA_PROCESS_ROLES": "broker",
            },
            "controller.quorum.bootstrap.servers",
        ),
        (
            {
                "KAFKA_CONTROLLER_QUORUM_VOTERS": "",
                "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "kafka-1:9093",
            },
            "controller.quorum.bootstrap.servers",
        ),
    ],
)
def test_a_node_of_a_raft_quorum_is_refused(
    image: Image, changed: dict[str, str], key: str
) -> None:
    """It would serve alone, with a part of the records, beside two others that do the same."""
    variables = {**COMBINED, **changed}
    with pytest.raises(ConfigError) as refused:
        image.config(**variables)
    value = variables[f"KAFKA_{key.upper().replace('.', '_')}"]
    assert refused.value.cause.startswith(f"{key}={value} ")
    assert "zookeeper.connect" in refused.value.fix
    config = image.config(**variables, KAFKA_ZOOKEEPER_CONNECT="zookeeper:2181")
    assert config.node_id == 2
    assert listeners(config) == ["PLAINTEXT://:19092", "OUTSIDE://:9092"]


def test_variables_of_bitnamis_image(image: Image) -> None:
    """A name without CFG is stronger."""
    config = image.config(
        KAFKA_CFG_NODE_ID="0",
        KAFKA_CFG_PROCESS_ROLES="controller,broker",
        KAFKA_CFG_LISTENERS="PLAINTEXT://:9092,CONTROLLER://:9093",
        KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        KAFKA_CFG_CONTROLLER_LISTENER_NAMES="CONTROLLER",
        KAFKA_CFG_CONTROLLER_QUORUM_VOTERS="0@kafka:9093",
        KAFKA_CFG_NUM_PARTITIONS="3",
        KAFKA_NUM_PARTITIONS="4",
        KAFKA_KRAFT_CLUSTER_ID="abcdefghijklmnopqrstuv",
        ALLOW_PLAINTEXT_LISTENER="yes",
    )
    assert config.node_id == 0 and config["num.partitions"] == 4
    assert listeners(config) == ["PLAINTEXT://:9092"]
    assert [each for each in config.warnings if "cfg" in each] == []
    with pytest.raises(ConfigError, match="there is no Raft quorum"):
        image.config(KAFKA_CFG_CONTROLLER_QUORUM_VOTERS=VOTERS)


@pytest.mark.parametrize("zookeeper", ["", "zookeeper:2181"])
def test_a_controller_without_a_broker_is_refused(image: Image, zookeeper: str) -> None:
    roles = {"KAFKA_PROCESS_ROLES": "controller", "KAFKA_ZOOKEEPER_CONNECT": zookeeper}
    with pytest.raises(ConfigError, match=r"process\.roles=controller ") as refused:
        image.config(**{**COMBINED, **roles})
    assert refused.value.fix.startswith("leave this node out")


@pytest.mark.parametrize("servers", ["localhost:9093", ""])
def test_a_quorum_of_one_node_is_that_broker(image: Image, servers: str) -> None:
    config = image.config(
        KAFKA_PROCESS_ROLES="broker,controller",
        KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS=servers,
    )
    assert config.node_id == 1


def test_secrets_by_the_names_of_their_files(image: Image) -> None:
    store = image.secret("broker.p12", b"store")
    key, password = image.secret("key", b"kp\n"), image.secret("password", b"p w\r\n")
    made = container.settings_of(
        {
            CONTAINER: str(IMAGE),
            "KAFKA_SSL_KEYSTORE_FILENAME": store,
            "KAFKA_SSL_KEYSTORE_CREDENTIALS": password,
            "KAFKA_SSL_KEY_CREDENTIALS": key,
            "KBROKER_SSL_TRUSTSTORE_FILENAME": store,
            "KAFKA_SSL_TRUSTSTORE_PASSWORD": "given",
        },
        None,
        (),
    ).environment
    assert {name: text for name, text in made.items() if name != CONTAINER} == {
        "KAFKA_SSL_KEYSTORE_LOCATION": str(image.secrets / store),
        "KAFKA_SSL_KEYSTORE_PASSWORD": "p w",
        "KAFKA_SSL_KEY_PASSWORD": "kp",
        "KBROKER_SSL_TRUSTSTORE_LOCATION": str(image.secrets / store),
        "KAFKA_SSL_TRUSTSTORE_PASSWORD": "given",
    }


@pytest.mark.parametrize(
    ("variable", "data", "words"),
    [
        ("KAFKA_SSL_KEYSTORE_FILENAME", None, "there is no file"),
        ("KAFKA_SSL_KEY_CREDENTIALS", None, "there is no file"),
        ("KAFKA_SSL_KEY_CREDENTIALS", b"", "no line with a password"),
        ("KAFKA_SSL_KEY_CREDENTIALS", b"one\ntwo\n", "no line with a password"),
        ("KAFKA_SSL_KEY_CREDENTIALS", b"x" * 5000, "no line with a password"),
        ("KAFKA_SSL_KEY_CREDENTIALS", b"\xff", "no UTF-8"),
    ],
)
def test_a_secret_that_cannot_be_read(
    image: Image, variable: str, data: bytes | None, words: str
) -> None:
    if data is not None:
        image.secret("secret", data)
    with pytest.raises(ConfigError, match=words) as caught:
        image.config(**{variable: "secret"})
    assert variable in str(caught.value)


def test_a_file_of_login_modules_in_javas_options(image: Image) -> None:
    path = "/etc/kafka/secrets/jaas.conf"
    options = f"-Xmx1g -Djava.security.auth.login.config={path}"
    assert image.config(KAFKA_OPTS=options)["kbroker.login.config.file"] == path
    both = {"KAFKA_OPTS": options, "KBROKER_KBROKER_LOGIN_CONFIG_FILE": "/other"}
    assert image.config(**both)["kbroker.login.config.file"] == "/other"


def warned(config: BrokerConfig) -> list[str]:
    return [each for each in config.warnings if "advertised.listeners" in each]


def test_advice_where_others_cannot_connect(image: Image) -> None:
    (line,) = warned(image.config())
    assert "PLAINTEXT://localhost:9092" in line and "KAFKA_ADVERTISED_LISTENERS" in line


@pytest.mark.parametrize(
    "variables",
    [
        {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092"},
        {"KAFKA_LISTENERS": "PLAINTEXT://:9092"},  # advertised as a client has reached it
        {
            "KAFKA_LISTENERS": "PLAINTEXT://localhost:9092",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
        },
        {
            "KAFKA_LISTENERS": "PLAINTEXT://:19092,OUTSIDE://:9092",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:19092,OUTSIDE://localhost:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
        },
    ],
)
def test_no_advice_where_they_can(image: Image, variables: dict[str, str]) -> None:
    assert warned(image.config(**variables)) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "[::1]", "LOCALHOST"])
def test_advice_for_every_name_of_this_machine(image: Image, host: str) -> None:
    config = image.config(KAFKA_ADVERTISED_LISTENERS=f"PLAINTEXT://{host}:9092")
    assert len(warned(config)) == 1
