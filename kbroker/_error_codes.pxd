# cython: language_level=3
"""Kafka's error codes that C answers, by the names of `errors.ErrorCode`; inline, no module.

The one place in C that has their numbers: tests/unit/test_errors.py holds them to that enum, and
finds a second place.
"""

cdef enum:
    UNKNOWN_SERVER_ERROR = -1
    NO_ERROR = 0                  # ErrorCode.NONE
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUEST = 42
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
