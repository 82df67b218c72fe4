"""Broker keys of a cluster's ZooKeeper: where it is, sessions, users, TLS.

Rows of the table only (see `key.py`). Apache Kafka had these up to 3.9, and names, meanings and
defaults are those; its users and passwords were in a JAAS file, so those keys are our own.
"""

from __future__ import annotations

from typing import Final

from kbroker.config.key import BOOLEAN, INT, PASSWORD, STRING
from kbroker.config.key import ConfigKey as Key

KEYS: Final = (
    Key("zookeeper.connect", STRING, None,
        "The ZooKeeper servers of a cluster, host:port separated by commas with an optional path"
        " at the end. Unset: one node with its own metadata store.", supported=True, kafka="-"),
    Key("zookeeper.connection.timeout.ms", INT, None,
        "How long to wait for ZooKeeper at start; unset: zookeeper.session.timeout.ms.", low=1,
        supported=True, kafka="-"),
    Key("zookeeper.session.timeout.ms", INT, 18_000,
        "Silence after which ZooKeeper takes this broker for dead.", low=1, supported=True,
        kafka="-"),
    Key("zookeeper.set.acl", BOOLEAN, False,
        "Let only this broker's user write what it creates in ZooKeeper; all may read it.",
        supported=True, kafka="-"),
    Key("zookeeper.auth.scheme", STRING, None,
        "How this broker logs in to ZooKeeper: with SASL's DIGEST-MD5, or with the older scheme"
        " digest. Unset: unauthenticated.", choices=("digest", "sasl"), supported=True, kafka="-"),
    Key("zookeeper.auth.username", STRING, None, "The user that this broker is to ZooKeeper.",
        supported=True, kafka="-"),
    Key("zookeeper.auth.password", PASSWORD, None, "The password of that user.", supported=True,
        kafka="-"),
    Key("zookeeper.ssl.client.enable", BOOLEAN, False, "Speak TLS with ZooKeeper.", supported=True,
        kafka="-"),
    Key("zookeeper.ssl.keystore.location", STRING, None,
        "PEM file with the certificate and the key that this broker shows to ZooKeeper.",
        supported=True, kafka="-"),
    Key("zookeeper.ssl.keystore.password", PASSWORD, None, "Password of that key.", supported=True,
        kafka="-"),
    Key("zookeeper.ssl.keystore.type", STRING, None,
        "Format of that file; PEM is the only one that is read here.", supported=True, kafka="-"),
    Key("zookeeper.ssl.truststore.location", STRING, None,
        "PEM file with the certificates that are trusted to be ZooKeeper's, beside the machine's.",
        supported=True, kafka="-"),
    Key("zookeeper.ssl.truststore.type", STRING, None,
        "Format of that file; PEM is the only one that is read here.", supported=True, kafka="-"),
    Key("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS",
        "How the name in ZooKeeper's certificate is checked; empty: not at all.", supported=True,
        kafka="-"),
)  # fmt: skip
