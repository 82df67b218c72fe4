# cython: language_level=3, auto_pickle=False
"""What a worker of the hot path may do, in each mode: one table.

    RUN         what a handler has taken from the queue. Others wait for the end of the run, so it
                waits for no disk: a request at a slow file is set aside (net/_aside)
    UNPACKING   produces that were put off to the end of the run, since unpacking takes long
    ASIDE       requests that were set aside: it waits for the disk, and no other request for it
    AT_ONCE     a fetch on the thread of its Processor, which all connections of that need: what
                cannot be answered at once is given back, to a handler

ROWS lists the modes that there are. The tests walk every cell.
"""

from enum import IntEnum, IntFlag

from kbroker.core._require cimport require


class Mode(IntEnum):
    RUN = 0
    UNPACKING = 1
    ASIDE = 2
    ASIDE_UNPACKING = 3
    AT_ONCE = 4


class May(IntFlag):
    WAIT_FOR_LOCKS = 1
    WAIT_FOR_DISK = 2
    PARK = 4
    GATHER = 8
    UNPACK = 16
    KEEP_DEADLINES = 32
    USE_BLOCKS = 64


_A_HANDLER = May.WAIT_FOR_LOCKS | May.PARK
_A_RUN = _A_HANDLER | May.GATHER | May.KEEP_DEADLINES

ROWS = {
    Mode.RUN: _A_RUN,
    Mode.UNPACKING: _A_RUN | May.UNPACK,
    Mode.ASIDE: _A_HANDLER | May.WAIT_FOR_DISK,
    Mode.ASIDE_UNPACKING: _A_HANDLER | May.WAIT_FOR_DISK | May.UNPACK,
    Mode.AT_ONCE: May.KEEP_DEADLINES | May.USE_BLOCKS,
}

# The table as C reads it: filled once, at import, and constant from then on.
cdef int _MAY[WORKER_MODES]


def _fill_table():
    for mode, may in ROWS.items():
        _MAY[<int>mode] = may


_fill_table()


cdef int worker_set_mode(HotWorker* worker, int mode) noexcept nogil:
    cdef int before = worker.mode
    require(0 <= mode < WORKER_MODES, "worker: its mode is one", mode, WORKER_MODES)
    worker.mode = mode
    worker.may = _MAY[mode]
    return before


cdef int worker_add_mode(HotWorker* worker, int mode) noexcept nogil:
    return worker_set_mode(worker, worker.mode | mode)


def may_of(int mode):
    """What a worker may do in a mode, as C has it."""
    cdef HotWorker worker
    worker.mode = MODE_RUN
    worker_set_mode(&worker, Mode(mode))
    return May(worker.may)
