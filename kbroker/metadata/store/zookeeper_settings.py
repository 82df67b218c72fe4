"""Which ZooKeeper, and how it is spoken to: the keys `zookeeper.*`, read and checked once.

Place in the flow: the server makes these of the configuration when it starts, `zookeeper.py` opens
sessions with them. Names and meanings are those of Apache Kafka up to 3.9, where it had the key;
credentials were in a JAAS file there and have keys of their own here. Knows no library.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from kbroker.errors import ConfigError
from kbroker.metadata.store.base import CHROOT_BYTES_MAX, check_path

CONNECT: Final = "zookeeper.connect"
DEFAULT_PORT: Final = 2181
DIGEST: Final = "digest"
SASL: Final = "sasl"
_PEM: Final = "PEM"


class Config(Protocol):
    """A broker's configuration: values by the names of their keys."""

    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True)
class Tls:
    """PEM files; None: no certificate of ours, or the system's authorities."""

    keystore: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    truststore: str | None = None
    verify_host: bool = True


@dataclass(frozen=True)
class ZooKeeperSettings:
    """`chroot` is the path below which everything is; the root itself is the empty text."""

    hosts: tuple[str, ...]
    chroot: str = ""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    set_acl: bool = False
    scheme: str | None = None  # DIGEST or SASL
    username: str = ""
    password: str = field(default="", repr=False)
    tls: Tls | None = None

    @classmethod
    def of(cls, config: Config) -> ZooKeeperSettings:
        """Of a configuration in which `zookeeper.connect` is set; ConfigError names the key."""
        hosts, chroot = parse_connect(config[CONNECT])
        scheme = config["zookeeper.auth.scheme"]
        username = config["zookeeper.auth.username"] or ""
        password = config["zookeeper.auth.password"] or ""
        if scheme is not None and not (username and password):
            raise ConfigError(
                f"zookeeper.auth.scheme={scheme} without a name and a password",
                "set zookeeper.auth.username and zookeeper.auth.password",
            )
        if config["zookeeper.set.acl"] and scheme is None:
            raise ConfigError(
                "zookeeper.set.acl=true keeps nodes for a user, and this broker logs in as none",
                "set zookeeper.auth.scheme, zookeeper.auth.username and zookeeper.auth.password",
            )
        session_timeout_ms = config["zookeeper.session.timeout.ms"]
        return cls(
            hosts,
            chroot,
            session_timeout_ms,
            config["zookeeper.connection.timeout.ms"] or session_timeout_ms,
            config["zookeeper.set.acl"],
            scheme,
            username,
            password,
            _tls(config) if config["zookeeper.ssl.client.enable"] else None,
        )

    def __str__(self) -> str:
        return ",".join(self.hosts) + self.chroot


def parse_connect(text: str) -> tuple[tuple[str, ...], str]:
    """`host:port,host:port/path` as hosts, each with its port, and the path ('' for none)."""
    servers, slash, path = text.partition("/")
    chroot = "" if not path else f"{slash}{path.rstrip('/')}"
    try:
        if chroot:
            check_path(chroot)
            if len(chroot.encode()) > CHROOT_BYTES_MAX:
                raise ValueError(f"its path has more than {CHROOT_BYTES_MAX} bytes")
        return tuple(_host_port(each.strip()) for each in servers.split(",")), chroot
    except ValueError as error:
        raise ConfigError(
            f"{CONNECT}={text!r} is not allowed: {error}",
            "use host:port of each server, separated by commas, and a path like /kafka if wanted",
        ) from None


def _host_port(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):  # without a port; [::1] is a whole host
        host, port = text, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text!r} is no host:port")
    host.encode("idna")  # UnicodeError: kazoo's thread would end by it when it looks the name up
    return f"{host}:{int(port)}"


def _tls(config: Config) -> Tls:
    return Tls(
        _pem(config, "zookeeper.ssl.keystore.location", "zookeeper.ssl.keystore.type"),
        config["zookeeper.ssl.keystore.password"],
        _pem(config, "zookeeper.ssl.truststore.location", "zookeeper.ssl.truststore.type"),
        bool(config["zookeeper.ssl.endpoint.identification.algorithm"]),
    )


def _pem(config: Config, location: str, kind: str) -> str | None:
    path: str | None = config[location]
    if path is not None and (config[kind] or _PEM).upper() != _PEM:
        raise ConfigError(
            f"{kind}={config[kind]} needs a JVM",
            "convert the store with `openssl pkcs12 -in STORE -out FILE -nodes`, and say PEM",
        )
    return path
