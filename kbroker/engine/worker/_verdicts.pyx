# cython: language_level=3
"""What the authorizer has decided, for C: (principal, host, operation, resource) to a verdict.

Python decides (`security/authorizer.py`) and puts its verdicts here; the hot path finds them
without the GIL and without a lock. A verdict is of one generation of the ACLs: a change begins the
next one, and no verdict of before counts. So a resource is decided once for each principal and host
after each change, not once for each request.

Bounded: sets of VERDICT_WAYS places, one allocation, of which the kernel gives what is touched. A
verdict may take the places of one set, by a keyed hash of all that it is of. A new one takes the
place of one that does not count any more, else of a denial that was not used since a place was last
looked for, else of any that was not used. If all were used, one goes in turn; but a denial takes no
place of a verdict that allows and is in use: names that clients make up do not drive out those that
others work with. A verdict that is not kept is decided again for the next request.

A reader compares all of the key, in words that are atomic, between two looks at `turn`; a writer
makes that odd. A principal is a number that is never given again, so a new one does not inherit.
The name is compared whole: a hash of it alone would be a promise about strangers' names.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kbroker.core._atomics cimport (
    kb_add_u64, kb_cas_i64, kb_load_i64, kb_load_int, kb_load_u64, kb_store_i64, kb_store_int,
    kb_store_u64)
from kbroker.core._keyed_hash cimport kb_keyed_hash, kb_keyed_number
from kbroker.core._lock_order cimport RANK_QUEUE, kb_mutex_init, lock_ranked, unlock_ranked
from kbroker.core._require cimport require
from kbroker.core._sync cimport pthread_mutex_destroy

cdef enum:
    VERDICT_SHIFT = 48            # in `what`
    COUNT_BITS = 32               # of `denials`
    TURN_MASK = 0x7fffffff        # of `turn`, in the upper half of `denials`

    # What a new verdict does to the one in a place, from the best place on.
    PLACE_STALE = 0
    PLACE_UNUSED_DENIAL = 1
    PLACE_UNUSED = 2
    PLACE_DENIAL = 3
    PLACE_USED = 4


cdef Verdicts* verdicts_new(uint32_t sets, uint64_t hash_key) noexcept nogil:
    """Empty. `sets` is a power of two. NULL: no memory."""
    cdef Verdicts* verdicts = <Verdicts*>calloc(1, sizeof(Verdicts))
    require(sets > 0 and sets & (sets - 1) == 0, "verdicts: a power of two of sets", sets, 1)
    if verdicts == NULL:
        return NULL
    verdicts.sets = <VerdictSet*>calloc(sets, sizeof(VerdictSet))
    if verdicts.sets == NULL:
        free(verdicts)
        return NULL
    verdicts.mask = sets - 1
    verdicts.hash_key = hash_key
    verdicts.generation = 1       # that of an empty place is 0
    kb_mutex_init(&verdicts.lock)
    return verdicts


cdef void verdicts_free(Verdicts* verdicts) noexcept nogil:
    if verdicts != NULL:
        pthread_mutex_destroy(&verdicts.lock)
        free(verdicts.sets)
        free(verdicts)


# --- the key -------------------------------------------------------------------------------------

cdef void asker_init(
    const Verdicts* verdicts, uint64_t who, const uint8_t* address, int is_ipv6, Asker* asker
) noexcept nogil:
    """`address`: 16 bytes, as channels have them."""
    asker.who = who
    memcpy(asker.host, address, 16)
    asker.is_ipv6 = is_ipv6 != 0
    asker.hash = kb_keyed_number(verdicts.hash_key, who, asker.host[0])
    asker.hash = kb_keyed_number(verdicts.hash_key, asker.hash, asker.host[1])


cdef void asker_of(const Verdicts* verdicts, const Request* request, Asker* asker) noexcept nogil:
    # A channel's session does not change while a request of it is lent.
    asker_init(verdicts, request.channel.session.number, request.channel.peer_address,
               request.channel.is_ipv6, asker)


cdef inline uint64_t _what(
    const Asker* asker, int operation, int type_, int32_t length
) noexcept nogil:
    return (<uint64_t>operation | <uint64_t>type_ << 8 | asker.is_ipv6 << 15
            | <uint64_t><uint32_t>length << 16)


cdef inline uint64_t _hash(
    const Verdicts* verdicts, const Asker* asker, uint64_t what, const uint8_t* name,
    int32_t length
) noexcept nogil:
    cdef uint64_t hash = kb_keyed_number(
        verdicts.hash_key, asker.hash,
        kb_keyed_hash(verdicts.hash_key ^ what, name, <size_t>length))
    return hash if hash != 0 else 1


cdef inline uint64_t _word(const uint8_t* name, int32_t length, int32_t at) noexcept nogil:
    # Of the name, from its byte 8 * at; zeros follow its end.
    cdef uint64_t word = 0
    cdef int32_t left = length - 8 * at
    if left >= 8:
        memcpy(&word, name + 8 * at, 8)
    else:
        memcpy(&word, name + 8 * at, <size_t>left)
    return word


cdef inline int32_t _words(int32_t length) noexcept nogil:
    return (length + 7) >> 3


cdef inline int _is_of(
    VerdictEntry* entry, const Asker* asker, uint64_t what, const uint8_t* name, int32_t length
) noexcept nogil:
    cdef int32_t i
    if (
        kb_load_u64(&entry.what) & ((<uint64_t>1 << VERDICT_SHIFT) - 1) != what
        or kb_load_u64(&entry.who) != asker.who
        or kb_load_u64(&entry.host[0]) != asker.host[0]
        or kb_load_u64(&entry.host[1]) != asker.host[1]
    ):
        return 0
    for i in range(_words(length)):
        if kb_load_u64(&entry.name[i]) != _word(name, length, i):
            return 0
    return 1


# --- reading -------------------------------------------------------------------------------------

cdef inline int64_t _no_denials(uint64_t turn) noexcept nogil:
    return <int64_t>(turn & TURN_MASK) << COUNT_BITS


cdef void _count_denial(VerdictEntry* entry, uint64_t turn) noexcept nogil:
    # Of this turn: one that another took the place of meanwhile is not counted.
    cdef int64_t seen = kb_load_i64(&entry.denials)
    while seen >> COUNT_BITS == <int64_t>(turn & TURN_MASK):
        if kb_cas_i64(&entry.denials, seen, seen + 1):
            return
        seen = kb_load_i64(&entry.denials)


cdef int _read(
    Verdicts* verdicts, VerdictEntry* entry, const Asker* asker, uint64_t what,
    const uint8_t* name, int32_t length, int counts,
) noexcept nogil:
    cdef uint64_t turn = kb_load_u64(&entry.turn)
    cdef int verdict
    if turn & 1 or kb_load_u64(&entry.generation) != kb_load_u64(&verdicts.generation):
        return VERDICT_UNKNOWN
    if not _is_of(entry, asker, what, name, length):
        return VERDICT_UNKNOWN
    verdict = <int>(kb_load_u64(&entry.what) >> VERDICT_SHIFT)
    if kb_load_u64(&entry.turn) != turn:
        return VERDICT_UNKNOWN
    if not kb_load_int(&entry.used):
        kb_store_int(&entry.used, 1)
    if verdict == VERDICT_DENIED and counts:
        _count_denial(entry, turn)
    return verdict


cdef int verdicts_find(
    Verdicts* verdicts, const Asker* asker, int operation, int type_, const uint8_t* name,
    int32_t length, int counts,
) noexcept nogil:
    """VERDICT_UNKNOWN: Python has not decided, or it was not kept."""
    cdef uint64_t what = _what(asker, operation, type_, length)
    cdef uint64_t hash
    cdef VerdictSet* set_
    cdef int verdict
    cdef int way
    if length > VERDICT_NAME_BYTES_MAX:
        return VERDICT_UNKNOWN
    hash = _hash(verdicts, asker, what, name, length)
    set_ = &verdicts.sets[hash & verdicts.mask]
    for way in range(VERDICT_WAYS):
        if kb_load_u64(&set_.hashes[way]) != hash:
            continue
        verdict = _read(verdicts, &set_.entries[way], asker, what, name, length, counts)
        if verdict != VERDICT_UNKNOWN:
            return verdict
    return VERDICT_UNKNOWN


# --- writing -------------------------------------------------------------------------------------

cdef int _price_locked(Verdicts* verdicts, VerdictEntry* entry) noexcept nogil:
    # Of taking its place.
    cdef int denies = entry.what >> VERDICT_SHIFT == VERDICT_DENIED
    if entry.generation != verdicts.generation:
        return PLACE_STALE
    if not kb_load_int(&entry.used):
        return PLACE_UNUSED_DENIAL if denies else PLACE_UNUSED
    return PLACE_DENIAL if denies else PLACE_USED


cdef int _place_locked(Verdicts* verdicts, VerdictSet* set_, int verdict) noexcept nogil:
    # The way for a new verdict; -1: none.
    cdef int best = -1
    cdef int best_price = PLACE_USED + 1
    cdef int price
    cdef int at
    cdef int i
    verdicts.hand += 1
    for i in range(VERDICT_WAYS):
        at = <int>((verdicts.hand + <uint32_t>i) % VERDICT_WAYS)
        price = _price_locked(verdicts, &set_.entries[at])
        if price < best_price:
            best = at
            best_price = price
    if best_price == PLACE_USED:
        if verdict == VERDICT_DENIED:
            return -1
        for i in range(VERDICT_WAYS):
            kb_store_int(&set_.entries[i].used, 0)
    return best


cdef int64_t _taken_locked(VerdictEntry* entry) noexcept nogil:
    # Its count, which begins again.
    cdef int64_t seen = kb_load_i64(&entry.denials)
    while not kb_cas_i64(&entry.denials, seen, _no_denials(entry.turn)):
        seen = kb_load_i64(&entry.denials)
    return seen & <int64_t>0xffffffff


cdef void _write_locked(
    VerdictEntry* entry, const Asker* asker, uint64_t what, const uint8_t* name, int32_t length,
    uint64_t generation, uint64_t denied_as,
) noexcept nogil:
    cdef int32_t i
    kb_store_u64(&entry.turn, entry.turn + 1)
    kb_store_u64(&entry.generation, generation)
    kb_store_u64(&entry.who, asker.who)
    kb_store_u64(&entry.host[0], asker.host[0])
    kb_store_u64(&entry.host[1], asker.host[1])
    kb_store_u64(&entry.what, what)
    for i in range(_words(length)):
        kb_store_u64(&entry.name[i], _word(name, length, i))
    entry.denied_as = denied_as
    kb_store_i64(&entry.denials, _no_denials(entry.turn + 1))
    kb_store_int(&entry.used, 0)
    kb_store_u64(&entry.turn, entry.turn + 1)


cdef int64_t verdicts_put(
    Verdicts* verdicts, const Asker* asker, int operation, int type_, const uint8_t* name,
    int32_t length, int verdict, uint64_t generation, uint64_t denied_as, Replaced* replaced,
) noexcept nogil:
    """`generation`: that of before the ACLs were looked at."""
    cdef uint64_t what = _what(asker, operation, type_, length)
    cdef uint64_t hash
    cdef VerdictSet* set_
    cdef VerdictEntry* entry
    cdef uint32_t number
    cdef int way = -1
    cdef int i
    replaced.denied_as = 0
    replaced.denials = 0
    if length > VERDICT_NAME_BYTES_MAX:
        return -1
    hash = _hash(verdicts, asker, what, name, length)
    number = <uint32_t>hash & verdicts.mask
    set_ = &verdicts.sets[number]
    lock_ranked(&verdicts.lock, RANK_QUEUE)
    if generation == kb_load_u64(&verdicts.generation):
        for i in range(VERDICT_WAYS):
            if set_.hashes[i] == hash and _is_of(&set_.entries[i], asker, what, name, length):
                way = i
                break
        if way < 0:
            way = _place_locked(verdicts, set_, verdict)
    if way >= 0:
        entry = &set_.entries[way]
        verdicts.kept += 1
        verdicts.replaced += entry.generation == generation
        replaced.denied_as = entry.denied_as
        replaced.denials = _taken_locked(entry)
        what |= <uint64_t>verdict << VERDICT_SHIFT
        _write_locked(entry, asker, what, name, length, generation, denied_as)
        kb_store_u64(&set_.hashes[way], hash)
    unlock_ranked(&verdicts.lock, RANK_QUEUE)
    return -1 if way < 0 else <int64_t>number * VERDICT_WAYS + way


cdef int64_t verdicts_take_denials(
    Verdicts* verdicts, int64_t place, uint64_t denied_as
) noexcept nogil:
    """`place` is one that verdicts_put returned."""
    cdef VerdictEntry* entry = &(
        verdicts.sets[place // VERDICT_WAYS].entries[place % VERDICT_WAYS])
    cdef int64_t denials = -1
    lock_ranked(&verdicts.lock, RANK_QUEUE)
    if entry.denied_as == denied_as:
        denials = _taken_locked(entry)
    unlock_ranked(&verdicts.lock, RANK_QUEUE)
    return denials


cdef void verdicts_forget(Verdicts* verdicts) noexcept nogil:
    """After the new ACLs can be seen: a verdict of this generation is by them."""
    kb_add_u64(&verdicts.generation, 1)
