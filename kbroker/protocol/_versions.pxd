# cython: language_level=3
"""API keys and first flexible versions of the APIs that C serves; inline, no module.

The one place in C that has them: tests/unit/protocol/test_versions.py holds them to `types.ApiKey`
and to `versions.FLEXIBLE_SINCE`, and finds a second place.
"""

cdef enum:
    API_PRODUCE = 0
    API_FETCH = 1
    API_METADATA = 3
    API_HEARTBEAT = 12
    API_SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    API_ADD_PARTITIONS_TO_TXN = 24
    API_END_TXN = 26
    API_SASL_AUTHENTICATE = 36
    API_CONSUMER_GROUP_HEARTBEAT = 68

    PRODUCE_FLEXIBLE_SINCE = 9
    FETCH_FLEXIBLE_SINCE = 12
    METADATA_FLEXIBLE_SINCE = 9
    OFFSET_COMMIT_FLEXIBLE_SINCE = 8
    HEARTBEAT_FLEXIBLE_SINCE = 4
    ADD_PARTITIONS_TO_TXN_FLEXIBLE_SINCE = 3
    END_TXN_FLEXIBLE_SINCE = 3
