# cython: language_level=3
"""The counting of the assignors: who gets how many partitions, and then which.

Partitions are numbered through all topics; `owners` has the member of each, or NO_OWNER: the last
assignment as it comes, the new one as it goes. The GIL is released for all of it. `range` is one
pass over the subscriptions; all that follows is about `uniform`.

Members that subscribe alike have each a share of all partitions, the same or one more. A member
keeps what it has up to its share; shares with one more go to those that have one more, as far as
there are any. So no fewer partitions can move. The rest fills the others up, in order.

Members that do not subscribe alike cannot always have the same. Within a topic one partition is as
good as another, so this works on counts for each subscriber of each topic:

1. Each keeps what it has. Partitions without an owner go, topic by topic, from the topic with the
   fewest subscribers on, to those that have least in all.
2. In rounds over the topics, one is levelled where some owner has two more in all than some
   subscriber: poured out again over what its subscribers have of the other topics. This lowers the
   sum of squares, so it ends; ROUNDS_MAX bounds the time.
3. What is left are chains: one gives a partition to a second, who gives one of another topic to a
   third, who has two less than the first. They are looked for from those that have most on. Where
   none is found, no member that was reached can be relieved, so each is looked at once.
4. Where a member lost a partition to one that has one more in all, it gets it back: the two change
   places. So fewer partitions move, and members are as alike as before. TRIES bounds the time.
5. Of each topic a member keeps as many of its partitions as it is to have.

So members are as alike as their subscriptions allow: no other sharing has a smaller sum of squares.
Level by halving: time O((rounds * log partitions + chains) * subscriptions), memory
O(subscriptions).
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cdef enum:
    NO_OWNER = -1
    ROUNDS_MAX = 16
    TRIES = 64                    # pairs that are looked at, for each subscription
    UNSEEN = -1                   # of a member that no chain has reached
    FIRST = -2                    # of the member at which a chain begins

cdef struct Topics:
    int32_t count
    int32_t members
    const int32_t* partitions     # of each topic the first, and the end
    const int32_t* subscriptions  # of each member the first in `subscribed`, and the end
    const int32_t* subscribed     # topics
    int32_t* entry                # of each of these: its place in `subscriber`
    int32_t* starts               # of each topic, in `subscriber` and what follows; and the end
    int32_t* subscriber           # members, ascending within a topic
    int32_t* had                  # partitions that the subscriber has and had
    int32_t* has
    int32_t* order                # topics, those with few subscribers first
    int32_t* load                 # of each member, over all topics
    int32_t* place                # of each member: its place among the topic's subscribers
    int32_t* others               # of each place: what it has of other topics
    int32_t* share                # of each place: what it is to get

cdef struct Chain:
    int32_t* seen                 # members, in the order in which they were reached
    int32_t* came_from            # of each member: its place in the topic that it was reached by
    int32_t* given                # of each member: the giver's place in that topic; UNSEEN, FIRST
    int32_t* seen_topics          # of each topic: whether it was reached
    int32_t closed                # of `seen`: those that cannot be relieved
    int32_t count                 # of `seen`


# --- range ----------------------------------------------------------------------------------------

def share_in_ranges(
    const int32_t[::1] partitions not None,
    const int32_t[::1] subscriptions not None,
    const int32_t[::1] subscribed not None,
    int32_t[::1] owners not None,
):
    """Each topic is cut into a piece for each subscriber, in their order; the arguments are those
    of `share_out`. MemoryError."""
    cdef int32_t count = <int32_t>(partitions.shape[0] - 1)
    cdef int32_t members = <int32_t>(subscriptions.shape[0] - 1)
    cdef int32_t* left
    if count == 0 or owners.shape[0] == 0 or subscribed.shape[0] == 0:
        return
    left = <int32_t*>calloc(2 * <size_t>count, sizeof(int32_t))
    if left == NULL:
        raise MemoryError
    with nogil:
        _share_in_ranges(&partitions[0], members, &subscriptions[0], &subscribed[0], &owners[0],
                         left, left + count)
    free(left)


cdef void _share_in_ranges(
    const int32_t* partitions, int32_t members, const int32_t* subscriptions,
    const int32_t* subscribed, int32_t* owners, int32_t* left, int32_t* next_one,
) noexcept nogil:
    """`left`: of each topic the subscribers that are still to come; `next_one`: the partition."""
    cdef int32_t member, each, topic, size
    for each in range(subscriptions[members]):
        topic = subscribed[each]
        left[topic] += 1
        next_one[topic] = partitions[topic]
    for member in range(members):
        for each in range(subscriptions[member], subscriptions[member + 1]):
            topic = subscribed[each]
            # Rounded up: those that come first have the one more.
            size = partitions[topic + 1] - next_one[topic]
            size = (size + left[topic] - 1) // left[topic]
            left[topic] -= 1
            for _ in range(size):
                owners[next_one[topic]] = member
                next_one[topic] += 1


# --- subscribed alike -----------------------------------------------------------------------------

def share_out_alike(int32_t members, int32_t[::1] owners not None):
    """For `members` >= 1 that subscribe alike. MemoryError."""
    cdef int32_t count = <int32_t>owners.shape[0]
    cdef int32_t* share = <int32_t*>calloc(2 * <size_t>members + 1, sizeof(int32_t))
    if share == NULL:
        raise MemoryError
    if count > 0:
        with nogil:
            _share_out_alike(members, &owners[0], count, share, share + members)
    free(share)


cdef void _share_out_alike(
    int32_t members, int32_t* owners, int32_t count, int32_t* share, int32_t* has
) noexcept nogil:
    cdef int32_t low = count // members
    cdef int32_t extras = count % members
    cdef int32_t member, each
    for each in range(count):
        if 0 <= owners[each] < members:
            has[owners[each]] += 1
        else:
            owners[each] = NO_OWNER
    for member in range(members):
        share[member] = low
        if has[member] > low and extras > 0:
            share[member] += 1
            extras -= 1
    for member in range(members):
        if extras > 0 and share[member] == low:
            share[member] += 1
            extras -= 1
        has[member] = 0
    for each in range(count):
        member = owners[each]
        if member != NO_OWNER:
            if has[member] < share[member]:
                has[member] += 1
            else:
                owners[each] = NO_OWNER
    member = 0
    for each in range(count):
        if owners[each] == NO_OWNER:
            while has[member] == share[member]:
                member += 1
            owners[each] = member
            has[member] += 1


# --- subscribed each to its own -------------------------------------------------------------------

def share_out(
    const int32_t[::1] partitions not None,
    const int32_t[::1] subscriptions not None,
    const int32_t[::1] subscribed not None,
    int32_t[::1] owners not None,
):
    """`partitions`: of each topic its first, and the end. `subscriptions`: of each member its first
    in `subscribed`, and the end; there are topics, each once. MemoryError."""
    cdef Topics topics
    cdef Chain chain
    cdef size_t entries = <size_t>subscribed.shape[0]
    cdef size_t room
    cdef int32_t* memory
    topics.count = <int32_t>(partitions.shape[0] - 1)
    topics.members = <int32_t>(subscriptions.shape[0] - 1)
    if topics.count == 0 or owners.shape[0] == 0:
        return
    room = 4 * entries + 7 * <size_t>topics.members + 3 * <size_t>topics.count + 2
    memory = <int32_t*>calloc(room, sizeof(int32_t))
    if memory == NULL:
        raise MemoryError
    topics.partitions = &partitions[0]
    topics.subscriptions = &subscriptions[0]
    topics.subscribed = &subscribed[0] if entries else NULL
    topics.entry = memory
    topics.subscriber = topics.entry + entries
    topics.had = topics.subscriber + entries
    topics.has = topics.had + entries
    topics.load = topics.has + entries
    topics.place = topics.load + topics.members
    topics.others = topics.place + topics.members
    topics.share = topics.others + topics.members
    topics.order = topics.share + topics.members
    topics.starts = topics.order + topics.count
    chain.seen = topics.starts + topics.count + 1
    chain.came_from = chain.seen + topics.members
    chain.given = chain.came_from + topics.members
    chain.seen_topics = chain.given + topics.members
    with nogil:
        _find_subscribers(&topics)
        _count_owned(&topics, &owners[0])
        _place_the_rest(&topics)
        _level_all(&topics)
        _follow_chains(&topics, &chain)
        _take_back(&topics)
        _choose_partitions(&topics, &owners[0])
    free(memory)


cdef void _find_subscribers(Topics* topics) noexcept nogil:
    """The subscribers of each topic, and the topics by how many those are."""
    cdef int32_t member, topic, each
    cdef int32_t* starts = topics.starts
    cdef int32_t* ends = topics.order        # free until the end
    for each in range(topics.subscriptions[topics.members]):
        starts[topics.subscribed[each] + 1] += 1
    for topic in range(topics.count):
        starts[topic + 1] += starts[topic]
        ends[topic] = starts[topic]
    for member in range(topics.members):
        for each in range(topics.subscriptions[member], topics.subscriptions[member + 1]):
            topic = topics.subscribed[each]
            topics.subscriber[ends[topic]] = member
            topics.entry[each] = ends[topic]
            ends[topic] += 1
    _sort_by_subscribers(topics)


cdef void _sort_by_subscribers(Topics* topics) noexcept nogil:
    """Counted into place; those with as many stay in their order."""
    cdef int32_t topic, size, before = 0, here
    cdef int32_t* counts = topics.load       # of `members` places, and `place` after it
    for topic in range(topics.count):
        counts[topics.starts[topic + 1] - topics.starts[topic]] += 1
    for size in range(topics.members + 1):
        here = counts[size]
        counts[size] = before
        before += here
    for topic in range(topics.count):
        size = topics.starts[topic + 1] - topics.starts[topic]
        topics.order[counts[size]] = topic
        counts[size] += 1
    for size in range(topics.members + 1):
        counts[size] = 0


cdef void _find_places(Topics* topics, int32_t topic) noexcept nogil:
    cdef int32_t each
    for each in range(topics.starts[topic], topics.starts[topic + 1]):
        topics.place[topics.subscriber[each]] = each


cdef inline int32_t _place_of(const Topics* topics, int32_t topic, int32_t member) noexcept nogil:
    """Where the member is among the subscribers, after `_find_places`; NO_OWNER: it is none."""
    cdef int32_t place
    if not 0 <= member < topics.members:
        return NO_OWNER
    place = topics.place[member]
    if not topics.starts[topic] <= place < topics.starts[topic + 1]:
        return NO_OWNER
    return place if topics.subscriber[place] == member else NO_OWNER


cdef void _count_owned(Topics* topics, int32_t* owners) noexcept nogil:
    cdef int32_t topic, each, place
    for topic in range(topics.count):
        _find_places(topics, topic)
        for each in range(topics.partitions[topic], topics.partitions[topic + 1]):
            place = _place_of(topics, topic, owners[each])
            if place == NO_OWNER:
                owners[each] = NO_OWNER
            else:
                topics.had[place] += 1
                topics.load[owners[each]] += 1
    memcpy(topics.has, topics.had, <size_t>topics.starts[topics.count] * sizeof(int32_t))


cdef void _place_the_rest(Topics* topics) noexcept nogil:
    cdef int32_t turn, topic, each, left
    for turn in range(topics.count):
        topic = topics.order[turn]
        left = topics.partitions[topic + 1] - topics.partitions[topic]
        for each in range(topics.starts[topic], topics.starts[topic + 1]):
            left -= topics.has[each]
            topics.others[each - topics.starts[topic]] = topics.load[topics.subscriber[each]]
        if left > 0:
            _pour(topics, topic, left, 0)


cdef void _level_all(Topics* topics) noexcept nogil:
    cdef int32_t turn, topic
    cdef int changed
    for _ in range(ROUNDS_MAX):
        changed = 0
        for turn in range(topics.count):
            topic = topics.order[turn]
            if not _is_level(topics, topic):
                changed = 1
                _level(topics, topic)
        if not changed:
            return


cdef int _is_level(const Topics* topics, int32_t topic) noexcept nogil:
    """Whether no owner has two more than any subscriber."""
    cdef int32_t each, load
    cdef int32_t least = INT32_MAX
    cdef int32_t most = 0
    for each in range(topics.starts[topic], topics.starts[topic + 1]):
        load = topics.load[topics.subscriber[each]]
        if load < least:
            least = load
        if topics.has[each] > 0 and load > most:
            most = load
    return most <= 1 or most - 1 <= least


cdef void _level(Topics* topics, int32_t topic) noexcept nogil:
    cdef int32_t start = topics.starts[topic]
    cdef int32_t each, member, count = 0
    for each in range(start, topics.starts[topic + 1]):
        member = topics.subscriber[each]
        topics.load[member] -= topics.has[each]
        topics.others[each - start] = topics.load[member]
        count += topics.has[each]
    _pour(topics, topic, count, 1)


cdef void _pour(Topics* topics, int32_t topic, int32_t count, int replaces) noexcept nogil:
    """Pours `count` partitions over what the subscribers have (`others`), so that those who get
    some end level. `replaces`: it is all that they have of the topic, and not besides that."""
    cdef int32_t start = topics.starts[topic]
    cdef int32_t subscribers = topics.starts[topic + 1] - start
    cdef int32_t* share = topics.share
    cdef int32_t level, each
    cdef int32_t extras = count
    if subscribers == 0:
        return
    level = _level_of(topics.others, subscribers, count)
    for each in range(subscribers):
        share[each] = _below(topics.others[each], level)
        extras -= share[each]
    # One above the level: those that had so many, then those that have, then in order.
    if replaces:
        extras = _give_extras(topics, level, subscribers, extras, topics.had + start)
        extras = _give_extras(topics, level, subscribers, extras, topics.has + start)
    _give_extras(topics, level, subscribers, extras, NULL)
    for each in range(subscribers):
        if replaces:
            topics.has[start + each] = share[each]
        else:
            topics.has[start + each] += share[each]
        topics.load[topics.subscriber[start + each]] += share[each]


cdef int32_t _give_extras(
    Topics* topics, int32_t level, int32_t subscribers, int32_t extras, const int32_t* before
) noexcept nogil:
    """One more to those at the level that have more in `before`, or to all; how many are left."""
    cdef int32_t each
    for each in range(subscribers):
        if extras == 0:
            break
        if topics.others[each] + topics.share[each] != level:
            continue                            # it is above, or has its one more
        if before == NULL or before[each] > topics.share[each]:
            topics.share[each] += 1
            extras -= 1
    return extras


cdef inline int32_t _below(int32_t load, int32_t level) noexcept nogil:
    return level - load if load < level else 0


cdef int32_t _level_of(const int32_t* loads, int32_t count, int32_t units) noexcept nogil:
    """The highest level up to which so many units fill all loads."""
    cdef int32_t each, low, high, middle
    cdef int64_t needed
    low = loads[0]
    for each in range(1, count):
        if loads[each] < low:
            low = loads[each]
    high = low + units + 1
    while high - low > 1:
        middle = low + (high - low) // 2
        needed = 0
        for each in range(count):
            needed += _below(loads[each], middle)
        if needed <= units:
            low = middle
        else:
            high = middle
    return low


# --- chains ---------------------------------------------------------------------------------------

cdef void _follow_chains(Topics* topics, Chain* chain) noexcept nogil:
    """From those that have most on, until no member can be relieved."""
    cdef int32_t member, load, most = 0
    cdef int32_t least = INT32_MAX
    chain.closed = chain.count = 0
    for member in range(topics.members):
        chain.given[member] = UNSEEN
        most = max(most, topics.load[member])
        least = min(least, topics.load[member])
    for load in range(most, least + 1, -1):
        for member in range(topics.members):
            while topics.load[member] == load and chain.given[member] == UNSEEN:
                if not _relieve(topics, chain, member):
                    break


cdef int _relieve(Topics* topics, Chain* chain, int32_t first) noexcept nogil:
    """Follows all chains that begin at a member, to the nearest end that has two less; whether
    there was one. Else all that were reached are closed: nothing leads out of them."""
    cdef int32_t next_one = chain.closed
    cdef int32_t member, other, topic, each, place
    chain.count = chain.closed + 1
    chain.seen[chain.closed] = first
    chain.given[first] = FIRST
    while next_one < chain.count:
        member = chain.seen[next_one]
        next_one += 1
        for each in range(topics.subscriptions[member], topics.subscriptions[member + 1]):
            topic = topics.subscribed[each]
            if topics.has[topics.entry[each]] == 0 or chain.seen_topics[topic]:
                continue
            chain.seen_topics[topic] = 1
            for place in range(topics.starts[topic], topics.starts[topic + 1]):
                other = topics.subscriber[place]
                if chain.given[other] != UNSEEN:
                    continue
                chain.given[other] = topics.entry[each]
                chain.came_from[other] = place
                chain.seen[chain.count] = other
                chain.count += 1
                if topics.load[other] <= topics.load[first] - 2:
                    _hand_on(topics, chain, other)
                    _forget(topics, chain)
                    return 1
    chain.closed = chain.count
    return 0


cdef void _hand_on(Topics* topics, Chain* chain, int32_t last) noexcept nogil:
    """Each of the chain gives one partition to the one that was reached from it."""
    cdef int32_t member = last
    topics.load[last] += 1
    while chain.given[member] != FIRST:
        topics.has[chain.came_from[member]] += 1
        topics.has[chain.given[member]] -= 1
        member = topics.subscriber[chain.given[member]]
    topics.load[member] -= 1


cdef void _forget(Topics* topics, Chain* chain) noexcept nogil:
    """The members that were reached, but for those that are closed."""
    cdef int32_t place, each, member
    for place in range(chain.closed, chain.count):
        member = chain.seen[place]
        chain.given[member] = UNSEEN
        for each in range(topics.subscriptions[member], topics.subscriptions[member + 1]):
            chain.seen_topics[topics.subscribed[each]] = 0
    chain.count = chain.closed


cdef void _take_back(Topics* topics) noexcept nogil:
    cdef int64_t tries = TRIES * <int64_t>topics.starts[topics.count]
    cdef int32_t topic, loser, gainer, start, end
    cdef int changed = 1
    while changed:
        changed = 0
        for topic in range(topics.count):
            start = topics.starts[topic]
            end = topics.starts[topic + 1]
            for loser in range(start, end):
                if topics.has[loser] >= topics.had[loser]:
                    continue
                for gainer in range(start, end):
                    tries -= 1
                    if tries < 0:
                        return
                    if (
                        topics.has[gainer] > topics.had[gainer]
                        and topics.load[topics.subscriber[gainer]]
                        == topics.load[topics.subscriber[loser]] + 1
                    ):
                        topics.has[gainer] -= 1
                        topics.load[topics.subscriber[gainer]] -= 1
                        topics.has[loser] += 1
                        topics.load[topics.subscriber[loser]] += 1
                        changed = 1
                        break


cdef void _choose_partitions(Topics* topics, int32_t* owners) noexcept nogil:
    cdef int32_t topic, each, place, next_one
    for topic in range(topics.count):
        _find_places(topics, topic)
        for each in range(topics.partitions[topic], topics.partitions[topic + 1]):
            place = _place_of(topics, topic, owners[each])
            if place != NO_OWNER and topics.has[place] > 0:
                topics.has[place] -= 1
            else:
                owners[each] = NO_OWNER
        next_one = topics.starts[topic]
        for each in range(topics.partitions[topic], topics.partitions[topic + 1]):
            if owners[each] == NO_OWNER:
                while next_one < topics.starts[topic + 1] and topics.has[next_one] == 0:
                    next_one += 1
                if next_one == topics.starts[topic + 1]:
                    break                       # a topic without subscribers
                owners[each] = topics.subscriber[next_one]
                topics.has[next_one] -= 1
