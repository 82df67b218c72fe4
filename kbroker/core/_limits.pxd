# cython: language_level=3
"""Bounds of `limits.py` that C needs, under their names there; inline, no module.

The header is written by setup.py with their values, of the names below. A bound of only one unit
of C is in that unit.
"""

cdef extern from "bounds.h" nogil:
    enum:
        API_KEYS_MAX
        API_VERSIONS_MAX
        ARRAY_ITEMS_MAX
        ASIDE_BYTES_MAX
        COPIED_SLICE_BYTES_MAX
        LISTENERS_MAX
        PARKED_BYTES_MAX
        PROCESSORS_MAX
        PRODUCERS_MAX
        REQUEST_PARTITIONS_MAX
        RUN_BYTES_MAX
        RUN_REQUESTS_MAX
        SESSIONS_BYTES_MAX
        SESSION_PARTITIONS_MAX
        TAGGED_FIELDS_MAX
        TEXT_BYTES_MAX
        TOPIC_NAME_CHARS_MAX
        TRAIN_BYTES_MAX
        TRAIN_FRAMES_MAX
        UNPACKED_BYTES_MIN
        UNPACKED_PIECE_BYTES
        UNPACKED_RATIO_MAX
        WORKERS_MAX
