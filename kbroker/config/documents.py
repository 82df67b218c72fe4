"""What the documents that describe the system say about settings: rows for docs/defaults.md.

The five documents are articles about Apache Kafka of several ages, so their values often differ
from today's. kbroker's defaults are those of Apache Kafka 4.3 unless a row gives a reason; an
experiment of a document sets the document's value itself.

Only the documentation generator imports this file; a broker never does.
"""

from __future__ import annotations

from typing import Final, NamedTuple

TITLES: Final[dict[str, str]] = {
    "000": "a pipelined request path for acks=-1",
    "001": "the network model",
    "002": "latency and delayed operations (Kafka 0.9)",
    "003": "reliability and performance",
    "004": "the network architecture and its tuning",
}


class DocumentValue(NamedTuple):
    """One statement of a document; `kafka` is today's default of a client's key."""

    document: str
    key: str
    says: str
    note: str
    kafka: str = ""


BROKER_VALUES: Final = (
    DocumentValue(
        "004",
        "num.network.threads",
        "CPUs x 2 (3 by default)",
        "Processors here are C threads that never wait for each other; more than half the cores"
        " only adds hand-offs.",
    ),
    DocumentValue(
        "004",
        "num.io.threads",
        "disks x 2",
        "Handlers also wait for the disk; idle ones cost nothing here.",
    ),
    DocumentValue(
        "004",
        "num.replica.fetchers",
        "CPUs / 4",
        "Matters only with several brokers.",
    ),
    DocumentValue(
        "004",
        "compression.type",
        "lz4",
        "As a broker setting it makes the broker compress every batch again; set it in the producer"
        " and leave the broker at producer.",
    ),
    DocumentValue(
        "004",
        "log.flush.interval.messages",
        "leave the default",
        "The kernel writes back; replicas, not fsync, make records safe.",
    ),
    DocumentValue("004", "log.flush.interval.ms", "leave the default", "As above."),
    DocumentValue("004", "log.flush.scheduler.interval.ms", "leave the default", "As above."),
    DocumentValue(
        "004",
        "auto.leader.rebalance.enable",
        "false (true by default)",
        "Matters only with several brokers: what a broker led before it was away is its again.",
    ),
    DocumentValue(
        "003",
        "replica.lag.time.max.ms",
        "10 s",
        "Apache Kafka raised it to 30 s in release 2.5.",
    ),
    DocumentValue(
        "003",
        "replica.fetch.wait.max.ms",
        "a follower fetches every 500 ms",
        "The longest wait of a fetch that finds nothing; one that finds records returns at once.",
    ),
    DocumentValue(
        "002",
        "replica.fetch.max.bytes",
        "1 MB",
        "The same value.",
    ),
    DocumentValue(
        "003",
        "min.insync.replicas",
        "more than 2",
        "The durable preset is acks=-1, 3 replicas and 2 here: with 3 of 3, none may fail.",
    ),
    DocumentValue(
        "003",
        "unclean.leader.election.enable",
        "false (its divergence story: true)",
        "Off, so that the story cannot happen by default.",
    ),
    DocumentValue(
        "003",
        "log.index.interval.bytes",
        "4 KB",
        "The same value.",
    ),
)

CLIENT_VALUES: Final = (
    DocumentValue("000", "max.in.flight.requests.per.connection", "5, 200, 2000", "", "5"),
    DocumentValue("002", "buffer.memory", "32 MB", "", "33554432"),
    DocumentValue("002", "retries", "0", "Bounded by delivery.timeout.ms today.", "2147483647"),
    DocumentValue("002", "batch.size", "16 KB", "", "16384"),
    DocumentValue("003", "batch.size", "16 KB", "", "16384"),
    DocumentValue("002", "linger.ms", "0", "5 since release 4.0.", "5"),
    DocumentValue("003", "linger.ms", "0", "5 since release 4.0.", "5"),
    DocumentValue("003", "compression.type", "none", "", "none"),
    DocumentValue(
        "003",
        "compression.level",
        "-1",
        "One key for each codec today: compression.gzip.level and so on.",
        "none",
    ),
    DocumentValue("003", "request.required.acks", "0, 1, -1", "Called acks today.", "all (-1)"),
    DocumentValue(
        "002",
        "fetch.message.max.bytes",
        "1 MB",
        "Called max.partition.fetch.bytes today.",
        "1048576",
    ),
    DocumentValue("002", "fetch.min.bytes", "1", "", "1"),
)
