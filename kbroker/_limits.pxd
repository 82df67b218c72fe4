# cython: language_level=3
"""Bounds of `limits.py` that C keeps, under their names there; inline, no module.

tests/unit/test_limits.py holds the two to each other. What only C bounds stands in its own unit.
"""

cdef enum:
    TEXT_BYTES_MAX = 0x7fff
    RUN_REQUESTS_MAX = 64
    RUN_BYTES_MAX = 4 << 20
    TRAIN_FRAMES_MAX = 32
    TRAIN_BYTES_MAX = 256 << 10
