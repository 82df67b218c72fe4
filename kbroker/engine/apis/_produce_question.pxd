# cython: language_level=3
from kbroker.engine.worker._context cimport HotContext, HotWorker


cdef class ProduceQuestions:
    cdef HotContext* context
    cdef dict asked               # by number, the address of a parked request with a reference
    cdef list take(self, HotWorker* worker)
    cdef int answered(self, object number, list errors) except -1
    cdef int forget(self) except -1
