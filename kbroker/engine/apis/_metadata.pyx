# cython: language_level=3
"""Metadata for a run, without the GIL: what is asked, which topics that are; then the answer.

    metadata_run: per request: enter the snapshot -> plan -> metadata_answer -> leave

handlers/metadata.py defines the API; it is the authority, and the answers here are its bytes. A
request that it must decide goes to it whole, in its place in the connection's order: a name that
would be created, cannot exist or is unknown and like an internal one's, ids before version 12, null
names, names that are not ASCII, more than MISSING_MAX topics that do not exist, anything that does
not parse, and everything while no view is published. Plan reads only the frame and the view, so
nothing has to be undone.

Fairness: Metadata comes last in a run, after the answers of its produces and fetches have left, and
after STEP_BYTES of answers or requests what is done leaves, and the role of taker with it: an
answer of ten thousand partitions takes a fifth of a millisecond. The snapshot is entered for one
request at a time, so publishing never waits for a run of them.

Protocol: MetadataRequest 0-13. Threads: the worker's own; no lock.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from kbroker.core._arena cimport arena_reset, arena_take
from kbroker.core._atomics cimport kb_load_ptr
from kbroker.core._error_codes cimport UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from kbroker.core._limits cimport ARRAY_ITEMS_MAX, TOPIC_NAME_CHARS_MAX
from kbroker.core._table cimport Table
from kbroker.net._types cimport Request
from kbroker.protocol._cursor cimport (
    Cursor,
    RequestHeader,
    skip_tags,
    take,
    take_header,
    take_i32,
    take_i8,
    take_string,
    take_uvarint,
)
from kbroker.protocol._versions cimport METADATA_FLEXIBLE_SINCE
from kbroker.replica._metadata_view cimport MetadataView, ViewTopic
from kbroker.replica._snapshot cimport snapshot_enter, snapshot_leave
from kbroker.replica._topic_index cimport topic_place_by_id, topic_place_by_name
from kbroker.engine.worker._answers cimport (
    cold_push,
    worker_give_up_role,
    worker_hand_over,
)
from kbroker.engine.worker._context cimport (
    REASON_METADATA,
    HotWorker,
)
from kbroker.engine.apis._metadata_answer cimport metadata_answer, metadata_answer_bound
from kbroker.engine.apis._metadata_plan cimport (
    CLUSTER_OPERATIONS_TO,
    MISSING_MAX,
    OPERATIONS_FROM,
    TOPIC_IDS_FROM,
    AnsweredTopic,
    MetadataPlan,
)

cdef enum:
    NULL_IS_ALL_FROM = 1
    AUTO_CREATION_FROM = 4
    LOOKUP_BY_ID_FROM = 12

    STEP_BYTES = 64 << 10         # answered or read before the others have their turn

cdef uint8_t[16] NO_ID


# Where the topics of a request stand in its frame.
cdef struct AskedTopics:
    Cursor items
    int32_t count                 # -1: null
    int by_id
    int null_names


cdef inline uint8_t* _take_topic(
    Cursor* cursor, MetadataPlan* plan, uint8_t** topic_id, int64_t* name_length,
) noexcept nogil:
    topic_id[0] = NULL
    if plan.version >= TOPIC_IDS_FROM:
        topic_id[0] = take(cursor, 16)
        if topic_id[0] != NULL and memcmp(topic_id[0], NO_ID, 16) == 0:
            topic_id[0] = NULL
    cdef uint8_t* name = take_string(cursor, plan.flexible, name_length)
    skip_tags(cursor, plan.flexible)
    return name


cdef int _is_ascii(const uint8_t* text, int64_t length) noexcept nogil:
    cdef uint8_t all_bits = 0
    cdef int64_t i
    for i in range(length):
        all_bits |= text[i]
    return all_bits < 0x80


cdef int _parse(MetadataPlan* plan, AskedTopics* asked, int* may_create) noexcept nogil:
    # -1: for Python, which closes the connection or knows better.
    cdef Request* request = plan.request
    cdef Cursor cursor
    cdef RequestHeader header
    cdef uint8_t* topic_id
    cdef uint8_t* name
    cdef int64_t count
    cdef int64_t length
    cdef int32_t _number
    take_header(&cursor, &header, request.data, request.length_bytes, plan.flexible)
    plan.correlation_id = header.correlation_id
    if plan.flexible:
        count = <int64_t>take_uvarint(&cursor) - 1
    else:
        count = take_i32(&cursor)
    if cursor.failed or count > ARRAY_ITEMS_MAX:
        return -1
    asked.count = <int32_t>count
    asked.items = cursor
    for _number in range(asked.count):
        name = _take_topic(&cursor, plan, &topic_id, &length)
        if cursor.failed or (name != NULL and not _is_ascii(name, length)):
            return -1
        asked.by_id |= topic_id != NULL
        asked.null_names |= name == NULL
    may_create[0] = take_i8(&cursor) != 0 if plan.version >= AUTO_CREATION_FROM else 1
    if OPERATIONS_FROM <= plan.version <= CLUSTER_OPERATIONS_TO:
        plan.cluster_operations = take_i8(&cursor) != 0
    if plan.version >= OPERATIONS_FROM:
        plan.topic_operations = take_i8(&cursor) != 0
    skip_tags(&cursor, plan.flexible)
    if cursor.failed or (asked.by_id and plan.version < LOOKUP_BY_ID_FROM):
        return -1
    if asked.null_names and not asked.by_id:
        return -1
    return 0


cdef int _is_plain_name(const uint8_t* name, int64_t length) noexcept nogil:
    # A name as metadata/topic_names.py says, and not like the internal ones, which are marked so
    # even where they do not exist.
    cdef uint8_t character
    cdef int64_t i
    if length < 1 or length > TOPIC_NAME_CHARS_MAX:
        return 0
    if length > 1 and name[0] == c"_" and name[1] == c"_":
        return 0
    if name[0] == c"." and (length == 1 or (length == 2 and name[1] == c".")):
        return 0
    for i in range(length):
        character = name[i]
        if not (
            c"a" <= character <= c"z" or c"A" <= character <= c"Z" or c"0" <= character <= c"9"
            or character == c"." or character == c"_" or character == c"-"
        ):
            return 0
    return 1


cdef int _add_missing(
    MetadataPlan* plan, uint8_t* topic_id, uint8_t* name, int64_t length,
) noexcept nogil:
    # One entry for each name or id; -1: too many of them. Compared with those missing alone.
    cdef AnsweredTopic* known
    cdef int32_t i
    for i in range(plan.missing):
        known = &plan.topics[plan.missing_at[i]]
        if topic_id != NULL and memcmp(known.topic_id, topic_id, 16) == 0:
            return 0
        if topic_id == NULL and known.name_length == length and (
            memcmp(known.name, name, <size_t>length) == 0
        ):
            return 0
    if plan.missing == MISSING_MAX:
        return -1
    known = &plan.topics[plan.count]
    known.error = UNKNOWN_TOPIC_OR_PARTITION if topic_id == NULL else UNKNOWN_TOPIC_ID
    known.topic_id = topic_id
    if topic_id == NULL:
        known.name = name
        known.name_length = <int32_t>length
    plan.missing_at[plan.missing] = plan.count
    plan.missing += 1
    plan.count += 1
    return 0


cdef inline int _first_time(uint8_t* seen, int64_t place) noexcept nogil:
    cdef uint8_t bit = <uint8_t>(1 << (place & 7))
    if seen[place >> 3] & bit:
        return 0
    seen[place >> 3] |= bit
    return 1


cdef int _look_up(
    HotWorker* worker, MetadataPlan* plan, AskedTopics* asked,
) noexcept nogil:
    # Each topic asked once, in the order of the request. -1: for Python.
    cdef MetadataView* view = plan.view
    cdef const Table* table = &view.index.by_id if asked.by_id else &view.index.by_name
    cdef Cursor cursor = asked.items
    cdef int64_t most = <int64_t>view.topic_count + MISSING_MAX
    cdef uint8_t* seen
    cdef uint8_t* topic_id
    cdef uint8_t* name
    cdef int64_t length
    cdef void** place
    cdef int32_t _number
    if asked.count < most:
        most = asked.count
    plan.topics = <AnsweredTopic*>arena_take(
        &worker.arena, sizeof(AnsweredTopic) * <size_t>(most + 1))
    seen = <uint8_t*>arena_take(&worker.arena, (table.mask >> 3) + 1)
    if plan.topics == NULL or seen == NULL:
        return -1
    for _number in range(asked.count):
        name = _take_topic(&cursor, plan, &topic_id, &length)
        if asked.by_id:
            if topic_id == NULL:
                continue
            place = topic_place_by_id(&view.index, topic_id)
        else:
            place = topic_place_by_name(&view.index, name, <int32_t>length)
        if place[0] != NULL:
            if _first_time(seen, place - table.places):
                plan.topics[plan.count].topic = <ViewTopic*>place[0]
                plan.count += 1
        elif not asked.by_id and not _is_plain_name(name, length):
            return -1
        elif _add_missing(plan, topic_id if asked.by_id else NULL, name, length) != 0:
            return -1
    return 0


cdef int _plan(HotWorker* worker, MetadataPlan* plan, Request* request) noexcept nogil:
    # -1: for Python.
    cdef AskedTopics asked
    cdef int may_create = 0
    plan.request = request
    plan.version = request.api_version
    plan.flexible = plan.version >= METADATA_FLEXIBLE_SINCE
    asked.by_id = 0
    asked.null_names = 0
    if _parse(plan, &asked, &may_create) != 0:
        return -1
    if plan.version < NULL_IS_ALL_FROM:
        if asked.count < 0:
            return -1
        plan.all_topics = asked.count == 0
    else:
        plan.all_topics = asked.count < 0
    if plan.all_topics or asked.count == 0:
        return 0
    if _look_up(worker, plan, &asked) != 0:
        return -1
    if plan.missing > 0 and not asked.by_id and may_create and worker.context.own.creates_topics:
        return -1
    return 0


cdef int64_t _metadata(HotWorker* worker, Request* request, int64_t step_bytes) noexcept nogil:
    # Answers one request, or passes it on; the bytes of this step so far.
    cdef MetadataPlan* plan = <MetadataPlan*>arena_take(&worker.arena, sizeof(MetadataPlan))
    cdef int64_t bound
    if plan != NULL:
        plan.view = <MetadataView*>kb_load_ptr(<void**>worker.context.published)
    if (
        plan == NULL or plan.view == NULL or worker.context.verdicts != NULL
        or request.channel.listener >= <unsigned>worker.context.own.listener_count
        or _plan(worker, plan, request) != 0
    ):
        cold_push(worker, request, REASON_METADATA)
        return step_bytes + request.total_bytes
    bound = metadata_answer_bound(worker, plan)
    step_bytes += request.total_bytes + bound
    if step_bytes >= STEP_BYTES:
        worker_hand_over(worker)
        worker_give_up_role(worker)
    metadata_answer(worker, plan, bound)
    return step_bytes


cdef void metadata_run(HotWorker* worker, Request* first) noexcept nogil:
    """Every Metadata request of a run, in order; those for Python go to the worker's cold list."""
    cdef Request* request = first
    cdef Request* following
    cdef int64_t step_bytes = 0
    worker_hand_over(worker)          # no request waits for another's list of topics
    while request != NULL:
        following = request.next
        request.next = NULL
        if request.total_bytes >= STEP_BYTES:
            worker_give_up_role(worker)
        snapshot_enter(worker.context.registry, worker.reader)
        step_bytes = _metadata(worker, request, step_bytes)
        snapshot_leave(worker.reader)
        arena_reset(&worker.arena)
        if step_bytes >= STEP_BYTES:
            step_bytes = 0
        request = following
    worker_hand_over(worker)
