# cython: language_level=3
"""The quotas of users and clients of one broker as Python sees them: limits, charges, figures.

C charges through `table` (`_quota_table`). A lock of C is taken without the GIL.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kbroker.core._atomics cimport kb_load_int
from kbroker.core._lock_order cimport RANK_QUEUE, lock_ranked, unlock_ranked
from kbroker.core._sync cimport kb_now_ns
from kbroker.core._table cimport Table
from kbroker.quota._quota_table cimport (
    ABSENT, EVERY, QUOTA_KINDS, QuotaAsker, QuotaCharge, QuotaFigure, QuotaLimit,
    QuotaName, QuotaTable, quota_charge, quota_figures, quota_limit_put,
    quota_limits_free, quota_mutate, quota_name, quota_table_free, quota_table_limit,
    quota_table_new)
from kbroker.quota._rate cimport QuotaWindow

cdef enum:
    NS_PER_MS = 1000000

_KINDS = ("produce", "fetch", "request", "mutation")


cdef bytes _encoded(text):
    return None if text is None else text.encode("utf-8", "replace")


cdef int _set_name(QuotaTable* table, QuotaName* name, text) except -1:
    cdef bytes encoded = _encoded(text)
    if encoded is None:
        name[0] = ABSENT
    elif not encoded:
        name[0] = EVERY
    else:
        name[0] = quota_name(table, <const uint8_t*>encoded, <int32_t>len(encoded))
    return 0


cdef int64_t _now_ms(given) except? -1:
    return kb_now_ns() // NS_PER_MS if given is None else given


cdef QuotaAsker _asker(bytes user, bytes client):
    # The bytes are the caller's.
    cdef QuotaAsker asker
    asker.held = NULL
    asker.session = NULL
    asker.user = <const uint8_t*>user
    asker.user_length = <int32_t>len(user)
    asker.client = <const uint8_t*>client
    asker.client_length = <int32_t>len(client)
    return asker


cdef tuple _figure(const QuotaFigure* figure):
    cdef Py_ssize_t user = max(figure.user_length, 0)
    cdef Py_ssize_t client = max(figure.client_length, 0)
    user_name = None
    client_name = None
    if figure.user_length >= 0:
        user_name = (<const char*>figure.names)[:user].decode("utf-8", "replace")
    if figure.client_length >= 0:
        client_name = (<const char*>figure.names)[user:user + client].decode("utf-8", "replace")
    return (_KINDS[figure.kind], user_name, client_name, figure.bound, figure.rate,
            figure.tokens, figure.throttles, figure.throttle_ms)


cdef class ClientQuotas:
    """The quotas of users and clients of one broker; for its handlers, and for tests."""

    def __cinit__(
        self, *, int samples=11, int64_t sample_ms=1000, int mutation_samples=11,
        int64_t mutation_sample_ms=1000, int64_t buckets_max=100000,
    ):
        """Windows: so many samples, each so long. `buckets_max`: of clients with a bucket each."""
        cdef QuotaWindow window
        cdef QuotaWindow of_mutations
        if (samples < 1 or sample_ms < 1 or mutation_samples < 1 or mutation_sample_ms < 1
                or buckets_max < 1):
            raise ValueError("quotas have windows of at least one sample, and a bucket")
        window.samples = samples
        window.sample_ms = sample_ms
        of_mutations.samples = mutation_samples
        of_mutations.sample_ms = mutation_sample_ms
        self.table = quota_table_new(&window, &of_mutations, buckets_max)
        if self.table == NULL:
            raise MemoryError

    def __dealloc__(self):
        quota_table_free(self.table)

    def load(self, limits):
        """These hold from now on: (user, client id, bounds by kind), where None is a part or a
        bound that it does not have, and an empty name the default; no two of the same entity."""
        cdef Table fresh
        cdef QuotaLimit limit
        cdef int in_force = 0
        cdef int kind
        memset(&fresh, 0, sizeof(fresh))
        try:
            for user, client, bounds in limits:
                _set_name(self.table, &limit.user, user)
                _set_name(self.table, &limit.client, client)
                for kind in range(QUOTA_KINDS):
                    bound = bounds[kind]
                    limit.bounds[kind] = -1.0 if bound is None else bound
                    if limit.bounds[kind] >= 0:
                        in_force |= 1 << kind
                if quota_limit_put(&fresh, &limit) != 0:
                    raise MemoryError
        except BaseException:
            quota_limits_free(&fresh)
            raise
        with nogil:
            quota_table_limit(self.table, &fresh, in_force)

    @property
    def in_force(self):
        """Of which kinds some entity has a quota."""
        bits = kb_load_int(&self.table.in_force)
        return {name for kind, name in enumerate(_KINDS) if bits >> kind & 1}

    def charge(self, str user, str client, *, kind=None, double size=0, double percent=-1,
               bint takes_back=False, now_ms=None):
        """How long a client that has used this is not to be read, in ms."""
        cdef bytes user_name = _encoded(user)
        cdef bytes client_name = _encoded(client)
        cdef QuotaAsker asker = _asker(user_name, client_name)
        cdef QuotaCharge charge
        cdef int64_t now = _now_ms(now_ms)
        cdef int number = -1 if kind is None else _KINDS.index(kind)
        cdef int32_t delay_ms
        charge.kind = number
        charge.bytes = size
        charge.takes_back = takes_back
        charge.percent = percent
        with nogil:
            delay_ms = quota_charge(self.table, &asker, &charge, now)
        return delay_ms

    def mutate(self, str user, str client, double count, bint strict, now_ms=None):
        """(whether it may be done, for how long the client is to wait in ms). `strict`: nothing is
        done, or taken, while tokens are owed."""
        cdef bytes user_name = _encoded(user)
        cdef bytes client_name = _encoded(client)
        cdef QuotaAsker asker = _asker(user_name, client_name)
        cdef int64_t now = _now_ms(now_ms)
        cdef int32_t throttle_ms = 0
        cdef int status
        with nogil:
            status = quota_mutate(self.table, &asker, count, strict, now, &throttle_ms)
        return status == 0, throttle_ms

    def figures(self, int64_t most=1000, now_ms=None):
        """Of the quotas used last: (kind, user, client id, bound, rate by the second, tokens,
        answers with a delay, their delays in ms). None: it has no such name; empty: of those
        beyond the bound, all together. Names may be cut."""
        cdef int64_t now = _now_ms(now_ms)
        cdef int64_t count = min(most, <int64_t>self.table.buckets.count)
        cdef QuotaFigure* figures = <QuotaFigure*>calloc(
            <size_t>max(count, <int64_t>1), sizeof(QuotaFigure))
        cdef int64_t at
        if figures == NULL:
            raise MemoryError
        try:
            with nogil:
                count = quota_figures(self.table, figures, count, now)
            return [_figure(&figures[at]) for at in range(count)]
        finally:
            free(figures)

    def statistics(self):
        """Buckets, limits, and how often a client got a shared bucket."""
        cdef int64_t buckets
        cdef int64_t limits
        cdef int64_t shared
        with nogil:
            lock_ranked(&self.table.lock, RANK_QUEUE)
            buckets = self.table.buckets.count
            limits = self.table.limits.count
            shared = self.table.shared
            unlock_ranked(&self.table.lock, RANK_QUEUE)
        return {"buckets": buckets, "limits": limits, "shared": shared}
