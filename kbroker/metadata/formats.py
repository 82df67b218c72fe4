"""The one table of format numbers: what a kbroker writes, by the number of its format.

Place in the flow: a thing that outlives a process, or that two brokers exchange, has a format with
a number, written where the thing is. A thing without a number is from a kbroker before this table:
number 0. A broker that meets a higher number than it knows does not start, and says in one line
which number it met, where, and which kbroker can read it (`check`): it would misread what is there.

A number is raised when something that needs it may be written, not before, so until then an earlier
kbroker can be started again. It is never lowered. `server/formats.py` raises and checks them.

docs/formats.md is drawn from this table. Pure values.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from kbroker import __version__
from kbroker.errors import DataDirectoryError


class Format(Enum):
    """What has a number, by its name in nodes."""

    LOG_DIRECTORY = "log.directory"
    STORE = "embedded.store"
    NODES = "nodes"
    INTERNAL_TOPICS = "internal.topics"
    BETWEEN_BROKERS = "between.brokers"
    BACKUP = "backup"


# Its name in lines and documents, and where its number is.
LABELS: Final = {
    Format.LOG_DIRECTORY: "log directory",
    Format.STORE: "embedded metadata store",
    Format.NODES: "nodes of the metadata tree",
    Format.INTERNAL_TOPICS: "records in internal topics",
    Format.BETWEEN_BROKERS: "protocol between brokers",
    Format.BACKUP: "backup",
}
PLACES: Final = {
    Format.LOG_DIRECTORY: "`kbroker.format` beside `meta.properties`, in each directory",
    Format.STORE: "the table `format` in `metadata.db`, whose schema is 4 then",
    Format.NODES: "the node `/kbroker/formats`",
    Format.INTERNAL_TOPICS: "the node `/kbroker/formats`",
    Format.BETWEEN_BROKERS: "the node `/kbroker/formats`",
    Format.BACKUP: "`kbroker_backup` in `manifest.json`",
}
# Those of the whole cluster.
IN_NODE: Final = (Format.NODES, Format.INTERNAL_TOPICS, Format.BETWEEN_BROKERS)


class Need(Enum):
    """What calls for a number."""

    NOTHING = "from the start"
    TRANSACTIONS = "a feature is finalized above 0, or `__transaction_state` exists"
    CONSUMER_GROUPS = "`group.version` has been finalized"
    SHARE_GROUPS = "`share.version` has been finalized"
    ACLS = "an ACL exists"
    USERS = "a user has settings, such as a SCRAM credential"
    QUOTAS = "a client id or an address has a quota"
    TOKENS = "a delegation token exists"


class Row(NamedTuple):
    """A number of a format: when it is written, by which kbroker first, and what it says."""

    format: Format
    number: int
    need: Need
    since: str
    holds: str


# By format, then by number, each from 0 without a gap.
TABLE: Final = (
    Row(
        Format.LOG_DIRECTORY, 0, Need.NOTHING, "0.1.0",
        "segments, indexes, producer snapshots and checkpoints of Apache Kafka 4.3, without"
        " transactions",
    ),
    Row(
        Format.LOG_DIRECTORY, 1, Need.TRANSACTIONS, "0.1.0",
        "also transactional batches, their markers, `.txnindex`, and open transactions in producer"
        " snapshots; an earlier kbroker would serve aborted records as committed ones",
    ),
    Row(
        Format.STORE, 0, Need.NOTHING, "0.1.0",
        "the nodes of docs/znodes.md in the SQLite schema 2",
    ),
    Row(
        Format.STORE, 1, Need.TRANSACTIONS, "0.1.0",
        "the same in the schema 4, which an earlier kbroker refuses",
    ),
    Row(
        Format.NODES, 0, Need.NOTHING, "0.1.0",
        "the tree of docs/znodes.md without `/kbroker`",
    ),
    Row(
        Format.NODES, 1, Need.TRANSACTIONS, "0.1.0",
        "also `/kbroker/features` and `/kbroker/formats`",
    ),
    Row(
        Format.NODES, 2, Need.ACLS, "0.1.0",
        "also ACLs; an earlier kbroker would serve requests that they deny",
    ),
    Row(
        Format.INTERNAL_TOPICS, 0, Need.NOTHING, "0.1.0",
        "`__consumer_offsets`: records of Apache Kafka 4.3 for classic groups and offsets",
    ),
    Row(
        Format.INTERNAL_TOPICS, 1, Need.TRANSACTIONS, "0.1.0",
        "also `__transaction_state` as Apache Kafka 4.3 writes it, and transactional batches and"
        " markers in `__consumer_offsets`",
    ),
    Row(
        Format.INTERNAL_TOPICS, 2, Need.CONSUMER_GROUPS, "0.1.0",
        "also records of groups of the consumer protocol in `__consumer_offsets`, as Apache Kafka"
        " 4.3 writes them; an earlier kbroker would begin a classic group in its place",
    ),
    Row(
        Format.INTERNAL_TOPICS, 3, Need.SHARE_GROUPS, "0.1.0",
        "also records of share groups in `__consumer_offsets`, and `__share_group_state`, as Apache"
        " Kafka 4.3 writes them; an earlier kbroker would begin a classic group in its place",
    ),
    Row(
        Format.BETWEEN_BROKERS, 0, Need.NOTHING, "0.1.0",
        "images in UpdateMetadata 1002 and 1003, AlterPartition 3, ControlledShutdown 3,"
        " Envelope 0",
    ),
    Row(
        Format.BETWEEN_BROKERS, 1, Need.TRANSACTIONS, "0.1.0",
        "also feature levels in images, AddPartitionsToTxn 4 and 5, WriteTxnMarkers 1 and 2",
    ),
    Row(
        Format.BETWEEN_BROKERS, 2, Need.USERS, "0.1.0",
        "also users in images; of an earlier kbroker as the controller no user could log in",
    ),
    Row(
        Format.BETWEEN_BROKERS, 3, Need.ACLS, "0.1.0",
        "also ACLs in images; an earlier kbroker as the controller would send none",
    ),
    Row(
        Format.BETWEEN_BROKERS, 4, Need.QUOTAS, "0.1.0",
        "also quotas of clients and addresses in images; an earlier kbroker as the controller would"
        " send none",
    ),
    Row(
        Format.BETWEEN_BROKERS, 5, Need.TOKENS, "0.1.0",
        "also delegation tokens in images; of an earlier kbroker as the controller none could log"
        " in",
    ),
    Row(
        Format.BACKUP, 0, Need.NOTHING, "0.1.0",
        "a directory of one broker's logs, with metadata and committed offsets as JSON"
        " (docs/backup.md)",
    ),
)  # fmt: skip

Numbers = Mapping[Format, int]


def newest(format_: Format) -> int:
    """The highest number that this kbroker reads and writes."""
    return max(row.number for row in TABLE if row.format is format_)


def needed(
    *,
    transactions: bool,
    users: bool = False,
    acls: bool = False,
    quotas: bool = False,
    consumer_groups: bool = False,
    share_groups: bool = False,
    tokens: bool = False,
) -> dict[Format, int]:
    """The numbers that what is written from now on needs."""
    met = {Need.NOTHING}
    met |= {Need.CONSUMER_GROUPS} if consumer_groups else set()
    met |= {Need.SHARE_GROUPS} if share_groups else set()
    met |= {Need.TRANSACTIONS} if transactions else set()
    met |= {Need.USERS} if users else set()
    met |= {Need.ACLS} if acls else set()
    met |= {Need.QUOTAS} if quotas else set()
    met |= {Need.TOKENS} if tokens else set()
    return {
        each: max(row.number for row in TABLE if row.format is each and row.need in met)
        for each in Format
    }


def check(format_: Format, number: int, where: str, written_by: str) -> None:
    """DataDirectoryError for a number that this kbroker cannot read."""
    if number <= newest(format_):
        return
    raise DataDirectoryError(
        f"{where} has format {number} of the {LABELS[format_]}, and kbroker {__version__} reads"
        f" formats up to {newest(format_)}",
        f"start kbroker {written_by} or a later one, which can read it",
    )
