# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.coordinator.group._copies cimport Copy
from kbroker.coordinator.group._fetching cimport Fetched
from kbroker.coordinator.group._structs cimport Member, GroupShard
from kbroker.coordinator.group._writing cimport Committer
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.core._arena cimport Arena

# A Committer of Python's in the form of C, which points into what is returned; of None, None.
cdef list committer_of(Committer* checked, bytes group, committer)
cdef const uint8_t* topic_id_at(bytes topic_id) except? NULL
cdef bytes encoded_key(bytes group, bytes topic, int32_t partition)
# Of the value of a committed offset; None: it has none, or is another one.
cdef bytes topic_id_in(bytes value)
cdef int fetched_init(
    Fetched* fetched, list asked, int64_t texts_again_max, bint named_before) except -1
cdef list fetched_topics(const Fetched* fetched, list asked, topic_id_of)
cdef object committed_of(const Copy* copied)
cdef Member* member_of(str member_id, str instance_id) except NULL
# A PublishedGroup, or None.
cdef object published_group(GroupShard* shard, const Text* id)
