# cython: language_level=3
from kbroker.quota._quota_table cimport QuotaTable


cdef class ClientQuotas:
    cdef QuotaTable* table
