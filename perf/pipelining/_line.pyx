# cython: language_level=3
"""The delay line as Python sees it; the work is in perf/native/perf_line.h."""

from libc.stdint cimport int64_t

cdef extern from "perf_line.h" nogil:
    int line_carry(int fd_a, int fd_b, int control_fd, int64_t delay_ns)


def carry(fd_a: int, fd_b: int, control_fd: int, delay_ns: int) -> None:
    """Carry packets between two TUN devices until the socket `control_fd` ends, without the GIL.

    A delay that comes on it, 8 native bytes of nanoseconds, holds from its echo on.
    """
    cdef int a = fd_a, b = fd_b, control = control_fd, status
    cdef int64_t delay = delay_ns
    with nogil:
        status = line_carry(a, b, control, delay)
    if status:
        raise MemoryError("the delay line has no memory for its packets")
