"""Settings that ask for features that this broker lacks, and that it must not ignore.

Most keys of Apache Kafka without effect here cost speed or comfort: a start with one logs a
warning (`broker.py`). A broker that ignored one of these would serve without the segments that are
in remote storage, let transactions end whose producers count on their two phases, take connections
for other principals than the operator's class would, or make topics that a policy forbids: a start
with one is refused, and so is a change while the broker runs.

Pure functions; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.config.definition import LISTENER_PREFIX
from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from kbroker.config.broker import BrokerConfig

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
)  # fmt: skip


def check_absent(config: BrokerConfig) -> None:
    """ConfigError names the first such setting, of a listener of its own, too."""
    for name in config.set_names():
        error = refusal(name, config[name], config.origin(name))
        if error is not None:
            raise error


def refusal(name: str, value: Any, origin: str) -> ConfigError | None:
    """Why this setting alone is refused; None: it asks for nothing that is absent."""
    for absent in ABSENT:
        if _is_of(name, absent.key) and value not in absent.same:
            text = str(value).lower() if value is True else value
            return ConfigError(f"{name}={text} ({origin}): {absent.why}", absent.fix)
    return None


def _is_of(name: str, key: str) -> bool:
    return name == key or (name.startswith(LISTENER_PREFIX) and name.endswith(f".{key}"))
