"""Settings that ask for features that this broker lacks, and that it must not ignore.

Most keys of Apache Kafka without effect here cost speed or comfort: a start with one logs a
warning (`broker.py`). A broker that ignored one of these would serve without the segments that are
in remote storage, let transactions end whose producers count on their two phases, take connections
for other principals than the operator's class would, make topics that a policy forbids, or take the
name of a password for the password: a start with one is refused, and so is a change while the
broker runs.

A start is refused as well for a node of a Raft quorum of several, unless `zookeeper.connect` names
another place for the metadata: each node would serve alone, with a part of the topics. A quorum
that is this node alone is what a broker without ZooKeeper is, too.

Pure functions; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.config.definition import LISTENER_PREFIX
from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from kbroker.config.broker import BrokerConfig

QUORUM: Final = (
    "process.roles",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
)
_ROLES, _VOTERS, _SERVERS = QUORUM
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
PROVIDERS: Final = "config.providers"
_JAVA: Final = "Java classes do not run here"


class Absent(NamedTuple):
    """`same`: values that ask for nothing more than there is."""

    key: str
    same: tuple[Any, ...]
    why: str
    fix: str


ABSENT: Final = (
    Absent(
        "remote.log.storage.system.enable", (False,), "there is no tiered storage here",
        "leave it unset; all segments have to be in the data directories",
    ),
    Absent(
        "transaction.two.phase.commit.enable", (False,), "there is no two-phase commit here",
        "leave it unset",
    ),
    Absent(
        "principal.builder.class",
        ("", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"), _JAVA,
        "leave it unset; ssl.principal.mapping.rules names the owners of certificates",
    ),
    Absent(
        "ssl.engine.factory.class",
        ("", "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"), _JAVA,
        "leave it unset; ssl.keystore.location and ssl.truststore.location name PEM files",
    ),
    Absent(
        "create.topic.policy.class.name", ("",), _JAVA,
        "leave it unset; ACLs on CREATE say who may create topics, and with which names",
    ),
    Absent(
        "alter.config.policy.class.name", ("",), _JAVA,
        "leave it unset; ACLs on ALTER_CONFIGS say who may change settings",
    ),
    # A password that stayed the text ${file:...} would be no secret.
    Absent(
        PROVIDERS, ((),), _JAVA,
        "leave it unset, and write the values themselves; a file with passwords has the mode 0600",
    ),
)  # fmt: skip


def check_absent(config: BrokerConfig) -> None:
    """ConfigError names the first such setting, of a listener of its own, too."""
    for name in config.set_names():
        error = refusal(name, config[name], config.origin(name))
        if error is not None:
            raise error


def check_quorum(config: BrokerConfig) -> None:
    """ConfigError: the metadata of this node would be in a Raft quorum, which is absent."""
    roles = config[_ROLES] or ()
    if roles and "broker" not in roles:
        raise ConfigError(
            f"{_ROLES}={','.join(roles)} ({config.origin(_ROLES)}): there are no controllers apart"
            " from brokers",
            "leave this node out; one of the brokers is the controller",
        )
    if config["zookeeper.connect"] is not None:
        return
    voters, servers = config[_VOTERS], config[_SERVERS]
    own = str(config.node_id)
    if any(each.partition("@")[0] != own for each in voters):
        raise _of_several(config, _VOTERS)
    if len(servers) > 1 or (servers and roles and "controller" not in roles):
        raise _of_several(config, _SERVERS)
    if servers and not voters and not _may_be_here(config, servers[0]):
        raise _of_several(config, _SERVERS)


def _may_be_here(config: BrokerConfig, server: str) -> bool:
    """Whether the one member of a quorum that is named is this node, as far as its addresses say.
    A new member of a quorum has to know no more than one of the others."""
    addresses = config["advertised.listeners"] or config["listeners"] or ()
    hosts = {host for each in addresses if (host := _host(each.partition("://")[2]))}
    return not hosts or _host(server) in hosts | _LOOPBACK


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _of_several(config: BrokerConfig, key: str) -> ConfigError:
    return ConfigError(
        f"{key}={','.join(config[key])} ({config.origin(key)}): there is no Raft quorum,"
        " brokers of a cluster have their metadata in ZooKeeper",
        "set zookeeper.connect on each broker, as deploy/compose.yaml does; for one broker alone"
        f" leave out {_ROLES} and controller.quorum.*",
    )


def refusal(name: str, value: Any, origin: str) -> ConfigError | None:
    """Why this setting alone is refused; None: it asks for nothing that is absent."""
    for absent in ABSENT:
        if _is_of(name, absent.key) and value not in absent.same:
            text = str(value).lower() if value is True else value
            text = ",".join(value) if isinstance(value, tuple) else text
            return ConfigError(f"{name}={text} ({origin}): {absent.why}", absent.fix)
    return None


def _is_of(name: str, key: str) -> bool:
    return name == key or (name.startswith(LISTENER_PREFIX) and name.endswith(f".{key}"))
