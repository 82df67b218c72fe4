"""The one table of configuration: every broker key and every topic key, by name.

Parsing, `config explain`, DescribeConfigs and docs/configuration.md all read these two mappings;
a key that is in none of them does not exist. The rows live in `keys_*.py`, one file a theme.

Built once at import and never changed, so any thread may read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kbroker.config import (
    keys_cluster,
    keys_group,
    keys_log,
    keys_network,
    keys_replication,
    keys_security,
    keys_share,
    keys_tiered,
    keys_topic,
    keys_zookeeper,
)
from kbroker.config.key import ConfigKey
from kbroker.errors import InvariantError

LISTENER_PREFIX: Final = "listener.name."
# Longer than any key by some.
_MISTAKEN_CHARS_MAX: Final = 100

# Title of each theme, in the order of the documentation.
THEMES: Final[tuple[tuple[str, tuple[ConfigKey, ...]], ...]] = (
    ("Node, topics and metadata", keys_cluster.KEYS),
    ("ZooKeeper", keys_zookeeper.KEYS),
    ("Network", keys_network.KEYS),
    ("Log", keys_log.KEYS),
    ("Replication and fetching", keys_replication.REPLICATION_KEYS),
    ("Groups and offsets", keys_group.GROUP_KEYS + keys_group.OFFSETS_KEYS),
    ("Transactions", keys_group.TRANSACTION_KEYS),
    ("Security", keys_security.KEYS),
    ("Quotas", keys_replication.QUOTA_KEYS),
    ("Metrics", keys_replication.METRICS_KEYS),
    ("Share and streams groups", keys_share.KEYS),
    ("Tiered storage", keys_tiered.KEYS),
)

# Keys of older releases that are read under their new names.
RENAMED_KEYS: Final[dict[str, str]] = {
    "delegation.token.master.key": "delegation.token.secret.key",
}
# Keys of older releases, with their replacements. They are reported, never an error: files that
# were written for those releases still start.
REMOVED_KEYS: Final[dict[str, str]] = {
    "advertised.host.name": "use advertised.listeners",
    "advertised.port": "use advertised.listeners",
    "broker.id.generation.enable": "set node.id",
    "control.plane.listener.name": "there is no separate control plane",
    "host.name": "use listeners",
    "leader.imbalance.per.broker.percentage": "Apache Kafka 4.3 has it no more",
    "log.message.downconversion.enable": "old record formats are not served",
    "log.message.format.version": "record batches are version 2",
    "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and"
    " log.message.timestamp.after.max.ms",
    "offsets.commit.required.acks": "commits always wait for all in-sync replicas",
    "port": "use listeners",
    "reserved.broker.max.id": "set node.id",
    "zookeeper.metadata.migration.enable": "there is no Raft quorum to migrate to",
    "zookeeper.sync.time.ms": "Apache Kafka 4.3 has it no more",
}  # fmt: skip


# Apache Kafka opens and closes listeners while it runs; here they are read when a broker starts.
READ_AT_START: Final = frozenset({"listeners", "listener.security.protocol.map"})


def _by_name(keys: Iterable[ConfigKey]) -> dict[str, ConfigKey]:
    table: dict[str, ConfigKey] = {}
    for key in keys:
        if key.name in table:
            raise InvariantError(f"two rows for the key {key.name}")
        table[key.name] = key
    return table


BROKER_KEYS: Final[dict[str, ConfigKey]] = _by_name(key for _, keys in THEMES for key in keys)
TOPIC_KEYS: Final[dict[str, ConfigKey]] = _by_name(keys_topic.KEYS)


def find_broker_key(name: str) -> ConfigKey | None:
    """The row that governs `name`, which may carry a listener's prefix; None if there is none.

    `listener.name.internal.ssl.keystore.location` is governed by `ssl.keystore.location`, and a
    SASL mechanism may stand between the two.
    """
    key = BROKER_KEYS.get(name)
    if key is not None or not name.startswith(LISTENER_PREFIX):
        return key
    rest = name[len(LISTENER_PREFIX) :]
    while "." in rest:
        rest = rest.partition(".")[2]
        if rest in BROKER_KEYS:
            return BROKER_KEYS[rest]
    return None


def of_a_listeners_tls(name: str) -> bool:
    """Whether `name` is a key of TLS with a listener's prefix."""
    return name.startswith(LISTENER_PREFIX) and ".ssl." in name


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The most similar of `names`, for "did you mean"; None if none is similar."""
    if len(name) > _MISTAKEN_CHARS_MAX:
        return None  # no mistake of a person's, and comparing takes the longer the longer it is
    # Few are compared: a client may ask for thousands of keys that there are not.
    alike = [each for each in names if each[:1] == name[:1] and abs(len(each) - len(name)) <= 3]
    if not alike:
        return None
    import difflib  # a mistake is rare, and this import is not free

    close = difflib.get_close_matches(name, alike, n=1, cutoff=0.75)
    return close[0] if close else None
