# cython: language_level=3
"""Who may fetch what.

A consumer needs READ on each topic. It is asked for before the topic is looked for, so that a
client without the right does not learn whether it exists; a topic that is named by an id that is
not known has no name to ask for. A session is no right: each of its fetches asks for all its
topics, so a right that goes away ends the records of that topic, and one that comes begins them.

A follower's reports move high watermarks. So such a fetch needs CLUSTER_ACTION on the
cluster where there is an authorizer, and has to come in on the listener of the brokers, if that is
known. Without either, each partition has the error, whether it exists or not, as in Apache Kafka.

What is denied is as what is not there: it does not keep the fetch from waiting for other
partitions, and a session's client that has had the error waits a second at most until it has it
again. The rights of a fetch that has waited are checked again when the wait ends, so a right that
was removed meanwhile is missing then; Apache Kafka checks them only when the fetch comes.

Verdicts are those of `_verdicts`; one look for each topic in a row, and none where a session's
client was allowed all of it by the same ACLs, and it has followed nothing else since. No lock but
the session's.
"""

from libc.stdint cimport int32_t, uint8_t, uint64_t

from kbroker.core._atomics cimport kb_load_u64
from kbroker.core._error_codes cimport TOPIC_AUTHORIZATION_FAILED
from kbroker.engine.worker._asked_rights cimport (
    AskedRights, asked_rights_add_known, asked_rights_keep, asked_rights_new, right_to)
from kbroker.engine.worker._verdicts cimport (
    OPERATION_CLUSTER_ACTION, OPERATION_READ, RESOURCE_CLUSTER, RESOURCE_TOPIC, VERDICT_ALLOWED,
    VERDICT_DENIED, VERDICT_UNKNOWN, Asker, asker_of)
from kbroker.engine.apis._fetch_look_up cimport fetch_note_not_there
from kbroker.engine.apis._fetch_plan cimport FetchTarget

cdef enum:
    CLUSTER_NAME_BYTES = 13

cdef const char* CLUSTER_NAME = b"kafka-cluster"


cdef void fetch_refuse_stranger(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    cdef int32_t inside = worker.context.own.followers_listener
    if inside < 0 or plan.request.channel.listener == <unsigned int>inside:
        return
    _refuse_all(plan)


cdef void _refuse_all(FetchPlan* plan) noexcept nogil:
    cdef int32_t i
    plan.is_stranger = 1
    for i in range(plan.count):
        _refuse(plan, &plan.targets[i])


cdef void _refuse(FetchPlan* plan, FetchTarget* target) noexcept nogil:
    if target.not_there:          # its own error would say so
        plan.not_there_count -= 1
        plan.known_count -= (plan.replica_id < 0 and target.entry != NULL
                             and target.entry.sent_error == target.error)
        target.made_again = 0
    target.error = TOPIC_AUTHORIZATION_FAILED
    target.partition = NULL
    fetch_note_not_there(plan, target)


cdef inline const uint8_t* _name_of(const FetchTarget* target, int32_t* length) noexcept nogil:
    # NULL: of an id that is not known.
    if target.topic != NULL:
        length[0] = target.topic.key.name_length
        return target.topic.key.name
    if target.topic_id != NULL:
        return NULL
    length[0] = target.name_length
    return target.name


cdef inline int _is_topic_of(const FetchTarget* target, const FetchTarget* before) noexcept nogil:
    if target.topic != NULL or before.topic != NULL:
        return target.topic == before.topic
    return target.topic_id == NULL and target.name == before.name


cdef inline int _may_read_all(
    FetchPlan* plan, const Asker* asker, uint64_t generation
) noexcept nogil:
    cdef const uint64_t* allowed
    if plan.session == NULL or not plan.incremental:
        return 0
    allowed = plan.session.allowed
    return (
        allowed[0] == generation and allowed[1] == asker.who
        and allowed[2] == asker.host[0] and allowed[3] == asker.host[1])


cdef inline void _note_may_read_all(
    FetchPlan* plan, const Asker* asker, uint64_t generation
) noexcept nogil:
    # Until it follows something else, too (`_follow_locked`), or the ACLs change.
    if plan.session == NULL or not plan.incremental or plan.leaves_out:
        return
    plan.session.allowed[0] = generation
    plan.session.allowed[1] = asker.who
    plan.session.allowed[2] = asker.host[0]
    plan.session.allowed[3] = asker.host[1]


cdef int fetch_rights_are_unknown(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    cdef uint64_t generation = kb_load_u64(&worker.context.verdicts.generation)
    cdef int verdict = VERDICT_ALLOWED
    cdef int unknown = 0
    cdef int all_allowed = plan.request.rights == NULL
    cdef FetchTarget* target
    cdef const uint8_t* name
    cdef int32_t length = 0
    cdef int32_t i
    cdef Asker asker
    asker_of(worker.context.verdicts, plan.request, &asker)
    if plan.replica_id >= 0:
        verdict = right_to(
            worker.context, plan.request, &asker, OPERATION_CLUSTER_ACTION, RESOURCE_CLUSTER,
            <const uint8_t*>CLUSTER_NAME, CLUSTER_NAME_BYTES, 1)
        if verdict == VERDICT_DENIED:
            _refuse_all(plan)
        return verdict == VERDICT_UNKNOWN
    if _may_read_all(plan, &asker, generation):
        return 0
    for i in range(plan.count):
        target = &plan.targets[i]
        if i == 0 or not _is_topic_of(target, &plan.targets[i - 1]):
            name = _name_of(target, &length)
            verdict = VERDICT_ALLOWED
            if name != NULL:
                verdict = right_to(
                    worker.context, plan.request, &asker, OPERATION_READ, RESOURCE_TOPIC, name,
                    length, 1)
            unknown |= verdict == VERDICT_UNKNOWN
            all_allowed &= name != NULL and verdict == VERDICT_ALLOWED
        if verdict == VERDICT_DENIED:
            _refuse(plan, target)
    if all_allowed:
        _note_may_read_all(plan, &asker, generation)
    return unknown


cdef int fetch_keep_rights(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    cdef AskedRights* asked
    cdef FetchTarget* target
    cdef const uint8_t* name
    cdef size_t names_bytes = CLUSTER_NAME_BYTES
    cdef int32_t length = 0
    cdef int32_t count = 1
    cdef int32_t i
    cdef Asker asker
    for i in range(plan.count):
        target = &plan.targets[i]
        if i > 0 and _is_topic_of(target, &plan.targets[i - 1]):
            continue
        if _name_of(target, &length) != NULL:
            count += 1
            names_bytes += <size_t>length
    asked = asked_rights_new(count, names_bytes, worker.context.hash_seed)
    if asked == NULL:
        return -1
    asker_of(worker.context.verdicts, plan.request, &asker)
    if plan.replica_id >= 0:
        asked_rights_add_known(
            asked, worker.context, plan.request, &asker, OPERATION_CLUSTER_ACTION,
            RESOURCE_CLUSTER, <const uint8_t*>CLUSTER_NAME, CLUSTER_NAME_BYTES)
    else:
        for i in range(plan.count):
            name = _name_of(&plan.targets[i], &length)
            if name != NULL:
                asked_rights_add_known(
                    asked, worker.context, plan.request, &asker, OPERATION_READ, RESOURCE_TOPIC,
                    name, length)
    asked_rights_keep(plan.request, asked)
    return 0
