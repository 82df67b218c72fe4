# cython: language_level=3
"""The struct sheet of the transaction coordinator's C half: transactional ids and their images."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.core._table cimport Table

cdef enum:
    # State of states.py
    TXN_NONE = -2                 # the first record is being written
    TXN_EMPTY = 0
    TXN_ONGOING = 1
    TXN_PREPARE_COMMIT = 2
    TXN_PREPARE_ABORT = 3
    TXN_COMPLETE_COMMIT = 4
    TXN_COMPLETE_ABORT = 5

    NO_PRODUCER_ID = -1
    NO_EPOCH = -1
    NO_TIME = -1


# The partitions of a transaction, which does not change: a list of topics by name, each with its
# partitions in ascending order, in the bytes that a record of version 0 has.
cdef struct Places:
    int64_t size_bytes            # of the list, which follows
    int32_t count                 # of partitions
    int32_t topic_count


# As `TransactionImage` of image.py.
cdef struct TxnImage:
    int64_t producer_id
    int64_t previous_producer_id
    int64_t next_producer_id
    int64_t update_ms
    int64_t start_ms
    Places* places                # NULL: none
    int32_t timeout_ms
    int16_t epoch
    int16_t last_epoch
    int16_t client_version
    int8_t state


# A transactional id in memory.
cdef struct TxnEntry:
    TxnImage image                # its places are the entry's own
    int64_t number                # of this entry alone
    int64_t term                  # for which it may write to its partition; see ShardTable.term
    const uint8_t* name           # of those that can be found by name; else NULL
    int32_t name_length
    uint32_t hash
    int8_t pending                # a write of it is under way, or markers
    int8_t fence_failed
    int8_t has_client             # one has had a request answered since the id was loaded
    int8_t left                   # an outcome that C has written, whose markers are Python's
    int32_t aborted               # transactions, since the id was loaded
    int32_t timed_out             # of them


# Transactions that C has ended.
cdef struct TxnEnded:
    int64_t committed
    int64_t aborted


# Those of one broker that have an ASCII name.
cdef struct TxnIds:
    Table by_name
    TxnEnded* ended
