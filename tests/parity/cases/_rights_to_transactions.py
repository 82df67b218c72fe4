"""Rights to transactional ids, and to the topics of transactions."""

from __future__ import annotations

from typing import Final

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._rights import add_rights, names, own, topics
from tests.parity.requests import build

book = Book()

add_rights(
    book,
    "InitProducerId",
    range(6),
    ["IDEMPOTENT_WRITE C", "WRITE T t", "READ T t", "WRITE X x", "ALL T t", "CLUSTER_ACTION C"],
    lambda talk, version: build(
        ApiKey.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout=60_000
    ),
)
add_rights(
    book,
    "InitProducerId with a transactional id",
    range(6),
    ["WRITE X x", "DESCRIBE X x", "IDEMPOTENT_WRITE C"],
    lambda talk, version: build(
        ApiKey.INIT_PRODUCER_ID,
        version,
        transactional_id=talk.name("x"),
        transaction_timeout=60_000,
    ),
    prepare=topics,
)
WRITERS: Final = [
    "WRITE X x",
    "WRITE X x, WRITE T t, WRITE T m",
    "WRITE X x, WRITE T t, WRITE T u",
    "WRITE T t",
]
add_rights(
    book,
    "AddPartitionsToTxn",
    range(4),
    WRITERS,
    lambda talk, version: build(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        v3_and_below_transactional_id=talk.name("x"),
        v3_and_below_producer_id=9_999,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[{"name": name, "partitions": [0]} for name in names(talk)],
    ),
    prepare=topics,
)
add_rights(
    book,
    "AddPartitionsToTxn of a broker",
    range(4, 6),
    ["CLUSTER_ACTION C", "WRITE X x, WRITE T t, WRITE T u", "CLUSTER_ACTION C, WRITE T t"],
    lambda talk, version: build(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        transactions=[
            {
                "transactional_id": talk.name("x"),
                "producer_id": 9_999,
                "producer_epoch": 0,
                "verify_only": True,
                "topics": [{"name": name, "partitions": [0]} for name in names(talk)],
            }
        ],
    ),
    prepare=topics,
)
add_rights(
    book,
    "AddOffsetsToTxn",
    range(5),
    ["WRITE X x", "READ G g", "WRITE X x, READ G g", "WRITE X x, DESCRIBE G g"],
    lambda talk, version: build(
        ApiKey.ADD_OFFSETS_TO_TXN,
        version,
        transactional_id=talk.name("x"),
        producer_id=9_999,
        producer_epoch=0,
        group_id=talk.name("g"),
    ),
)
add_rights(
    book,
    "EndTxn",
    range(6),
    ["WRITE X x", "DESCRIBE X x"],
    lambda talk, version: build(
        ApiKey.END_TXN,
        version,
        transactional_id=talk.name("x"),
        producer_id=9_999,
        producer_epoch=0,
        committed=True,
    ),
)
add_rights(
    book,
    "TxnOffsetCommit",
    range(6),
    [
        "WRITE X x",
        "READ G g",
        "WRITE X x, READ G g",
        "WRITE X x, READ G g, READ T t, READ T m",
    ],
    lambda talk, version: build(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        transactional_id=talk.name("x"),
        group_id=talk.name("g"),
        producer_id=9_999,
        producer_epoch=0,
        generation_id=-1,
        topics=[
            {
                "name": name,
                "partitions": [{"partition_index": 0, "committed_offset": 1}],
            }
            for name in names(talk)
        ],
    ),
    prepare=topics,
)
add_rights(
    book,
    "WriteTxnMarkers",
    range(1, 3),
    ["ALTER C", "CLUSTER_ACTION C", "DESCRIBE C"],
    lambda talk, version: build(
        ApiKey.WRITE_TXN_MARKERS,
        version,
        markers=[
            {
                "producer_id": 1,
                "producer_epoch": 0,
                "transaction_result": True,
                "topics": [{"name": talk.name("m"), "partition_indexes": [0]}],
                "coordinator_epoch": 0,
            }
        ],
    ),
)
add_rights(
    book,
    "DescribeTransactions",
    [0],
    ["DESCRIBE X x", "WRITE X x", "READ T t"],
    lambda talk, version: build(
        ApiKey.DESCRIBE_TRANSACTIONS,
        version,
        transactional_ids=[talk.name("y"), talk.name("x")],
    ),
)
add_rights(
    book,
    "ListTransactions",
    range(3),
    ["DESCRIBE X x"],
    lambda talk, version: build(ApiKey.LIST_TRANSACTIONS, version),
    view=own("transaction_states"),
)
