# cython: language_level=3
"""Bounds of `limits.py` that C keeps, under their names there; inline, no module.

tests/unit/test_limits.py holds the two to each other. What only C bounds stands in its own unit.
"""

cdef enum:
    ARRAY_ITEMS_MAX = 1000000
    TAGGED_FIELDS_MAX = 10000
    TEXT_BYTES_MAX = 0x7fff
    TOPIC_NAME_CHARS_MAX = 249
    PROCESSORS_MAX = 64
    RUN_REQUESTS_MAX = 64
    RUN_BYTES_MAX = 4 << 20
    TRAIN_FRAMES_MAX = 32
    TRAIN_BYTES_MAX = 256 << 10
    UNPACKED_RATIO_MAX = 256
    UNPACKED_BYTES_MIN = 64 << 20
    UNPACKED_PIECE_BYTES = 1 << 20
