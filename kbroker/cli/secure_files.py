"""The files and lines of `kbroker secure init`: settings of brokers, and what six clients need.

The lines that are printed name files for the password, so that they can be copied as they are and
have no secret in them. Pure functions of the plan.
"""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.config.listeners import format_address

BROKER_USER: Final = "broker"
MECHANISM: Final = "SCRAM-SHA-512"
_PROTOCOL: Final = "SASL_SSL"
_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_FIRST_ADMIN_PORT: Final = 9644


class Node(NamedTuple):
    """A broker, with its host and port as clients reach it."""

    node_id: int
    host: str
    port: int

    @property
    def name(self) -> str:
        return f"broker-{self.node_id}"

    @property
    def address(self) -> str:
        return format_address(self.host, self.port)

    @property
    def names(self) -> list[str]:
        """Those in its certificate: also what its own clients on the same machine connect to."""
        return list(dict.fromkeys((self.host, *_LOOPBACK)))

    @property
    def bound(self) -> str:
        """Where it listens: an address itself, of a name all interfaces."""
        if self.host in _LOOPBACK:
            return self.address
        try:
            ip_address(self.host)
        except ValueError:
            return f"0.0.0.0:{self.port}"
        return self.address


class Plan(NamedTuple):
    directory: Path
    nodes: list[Node]
    zookeeper: str | None
    user: str
    password: str
    broker_password: str
    encoder_secret: str  # of the passwords that are set at run time

    @property
    def authority(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def authority_key(self) -> Path:
        return self.directory / "ca.key"

    @property
    def password_file(self) -> Path:
        return self.directory / "user.password"

    @property
    def java_file(self) -> Path:
        return self.directory / "client.properties"

    @property
    def librdkafka_file(self) -> Path:
        return self.directory / "librdkafka.conf"

    def key_store(self, node: Node) -> Path:
        return self.directory / f"{node.name}.pem"

    def properties(self, node: Node) -> Path:
        return self.directory / f"{node.name}.properties"

    @property
    def paths(self) -> list[Path]:
        """All that is written; with the last one nothing is left to do."""
        return [
            self.authority,
            self.authority_key,
            *map(self.key_store, self.nodes),
            *map(self.properties, self.nodes),
            self.password_file,
            self.java_file,
            self.librdkafka_file,
        ]

    @property
    def bootstrap(self) -> str:
        return ",".join(each.address for each in self.nodes)


def broker_text(plan: Plan, node: Node) -> str:
    listener = f"listener.name.{_PROTOCOL.lower()}.{MECHANISM.lower()}"
    admin = _FIRST_ADMIN_PORT + node.node_id - 1
    settings = {
        "node.id": str(node.node_id),
        "log.dirs": str(plan.directory / f"data-{node.node_id}"),
        "listeners": f"{_PROTOCOL}://{node.bound}",
        "advertised.listeners": f"{_PROTOCOL}://{node.address}",
        "admin.listeners": f"http://127.0.0.1:{admin}",
        "security.inter.broker.protocol": _PROTOCOL,
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        f"{listener}.sasl.jaas.config": _jaas(BROKER_USER, plan.broker_password),
        "password.encoder.secret": plan.encoder_secret,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(plan.key_store(node)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(plan.authority),
        **_authorization(plan),
        "kbroker.audit.file": str(plan.directory / f"audit-{node.node_id}.log"),
    }
    if plan.zookeeper is not None:
        settings["zookeeper.connect"] = plan.zookeeper
    return _properties("a broker", settings)


def _authorization(plan: Plan) -> dict[str, str]:
    from kbroker.server import authorizer

    return {
        authorizer.CLASS: authorizer.NAMES[0],
        authorizer.SUPER_USERS: f"User:{plan.user};User:{BROKER_USER}",
    }


def java_text(plan: Plan) -> str:
    """For Java's clients and tools, and for kbroker's commands."""
    return _properties(
        f"clients of the user {plan.user}",
        {
            "bootstrap.servers": plan.bootstrap,
            "security.protocol": _PROTOCOL,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": _jaas(plan.user, plan.password),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(plan.authority),
        },
    )


def librdkafka_text(plan: Plan) -> str:
    """For `kcat -F` and programs that read such a file. Its values have no escapes."""
    return (
        f"bootstrap.servers={plan.bootstrap}\n"
        f"security.protocol={_PROTOCOL}\n"
        f"sasl.mechanism={MECHANISM}\n"
        f"sasl.username={plan.user}\n"
        f"sasl.password={plan.password}\n"
        f"ssl.ca.location={plan.authority}\n"
    )


def client_lines(plan: Plan) -> list[str]:
    """How six clients connect; as Python and Go code, or arguments."""
    user, ca, password = plan.user, str(plan.authority), str(plan.password_file)
    mechanism = f'security_protocol="{_PROTOCOL}", sasl_mechanism="{MECHANISM}",'
    login = f"sasl_plain_username={user!r}, sasl_plain_password=open({password!r}).read(),"
    seeds = ", ".join(f'"{each.address}"' for each in plan.nodes)
    return [
        "",
        "# Java, kafka-*.sh, kbroker: the properties, or --command-config",
        f"kbroker topic list -b {plan.bootstrap} --command-config {plan.java_file}",
        "",
        "# librdkafka (confluent-kafka): the settings of this file",
        f"{plan.librdkafka_file}",
        "",
        "# kcat with librdkafka 2.6.1 or later (kcat -V): earlier ones have another SCRAM",
        f"kcat -F {plan.librdkafka_file} -L",
        "",
        "# kafka-python",
        "from kafka import KafkaProducer",
        f"KafkaProducer(bootstrap_servers={plan.bootstrap!r}, {mechanism}",
        f"    {login}",
        f"    ssl_cafile={ca!r})",
        "",
        "# aiokafka",
        "from aiokafka import AIOKafkaProducer",
        "from aiokafka.helpers import create_ssl_context",
        f"AIOKafkaProducer(bootstrap_servers={plan.bootstrap!r}, {mechanism}",
        f"    {login}",
        f"    ssl_context=create_ssl_context(cafile={ca!r}))",
        "",
        "// franz-go",
        f'ca, _ := os.ReadFile("{ca}"); password, _ := os.ReadFile("{password}")',
        "roots := x509.NewCertPool(); roots.AppendCertsFromPEM(ca)",
        f"kgo.NewClient(kgo.SeedBrokers({seeds}),",
        "    kgo.DialTLSConfig(&tls.Config{RootCAs: roots}),",
        f'    kgo.SASL(scram.Auth{{User: "{user}", Pass: string(password)}}.AsSha512Mechanism()))',
    ]


def _jaas(user: str, password: str) -> str:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'{_LOGIN} required username="{user}" password="{quoted}";'


def _properties(whose: str, settings: dict[str, str]) -> str:
    lines = [f"# Written by `kbroker secure init` for {whose}. It may have passwords: keep it."]
    for key, value in settings.items():
        escaped = value.replace("\\", "\\\\")
        lines.append(f"{key}={escaped}")
    return "\n".join(lines) + "\n"
