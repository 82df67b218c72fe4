# cython: language_level=3
"""Lists through the fields of their items; inline, without a module.

    list_append(&queue.head, &queue.tail, request, &request.next, "queue: nothing is after the end")
    linked_remove(&cache.oldest, &cache.newest, session, &session.older, "cache: neighbours agree")

A list is two pointers of its owner: the first item and the last. `list_*`: an item has one link, to
the next. `linked_*`: it has two, to the previous item and, in the field after that, to the next
one; a list that needs no end is given NULL for `last`. An item may be in several lists, by other
fields: a call takes the item and the address of its first link, and finds the links of other items
at the same distance. The links of an item that leaves are NULL. The types are where a list is
walked. Each change requires that the neighbours agree, by a text of its caller's; else the process
ends, since lists are shared.
"""

from libc.stddef cimport ptrdiff_t

from kbroker.core._require cimport require, require_same

cdef extern from "list_link.h" nogil:
    ctypedef void* kb_link


cdef inline kb_link* _link_of(void* item, ptrdiff_t offset) noexcept nogil:
    return <kb_link*>(<char*>item + offset)


cdef inline void list_append_all(
    void* first, void* last, void* head, void* tail, void* next_of_tail, const char* text
) noexcept nogil:
    # A chain of items, from `head` to `tail`.
    cdef kb_link* end = <kb_link*>last
    cdef kb_link* place = <kb_link*>first
    if end[0] != NULL:
        place = _link_of(end[0], <char*>next_of_tail - <char*>tail)
    require_same(place[0], NULL, text)
    place[0] = head
    end[0] = tail
    (<kb_link*>next_of_tail)[0] = NULL


cdef inline void list_append(
    void* first, void* last, void* item, void* next, const char* text
) noexcept nogil:
    list_append_all(first, last, item, item, next, text)


cdef inline void list_remove_first(
    void* first, void* last, void* item, void* next, const char* text
) noexcept nogil:
    cdef kb_link* place = <kb_link*>first
    cdef kb_link* own = <kb_link*>next
    require_same(place[0], item, text)
    place[0] = own[0]
    if own[0] == NULL:
        require_same((<kb_link*>last)[0], item, text)
        (<kb_link*>last)[0] = NULL
    own[0] = NULL


# Of a list without an end, wherever the item is: a short one.
cdef inline void list_remove(void* first, void* item, void* next, const char* text) noexcept nogil:
    cdef kb_link* place = <kb_link*>first
    while place[0] != item:
        require(place[0] != NULL, text, 0, 1)
        place = _link_of(place[0], <char*>next - <char*>item)
    place[0] = (<kb_link*>next)[0]
    (<kb_link*>next)[0] = NULL


# After `previous`, or NULL: as the first.
cdef inline void linked_insert(
    void* first, void* last, void* item, void* links, void* previous, const char* text
) noexcept nogil:
    cdef ptrdiff_t offset = <char*>links - <char*>item
    cdef kb_link* own = <kb_link*>links
    cdef kb_link* forward = <kb_link*>first
    cdef kb_link* back = <kb_link*>last
    if previous != NULL:
        forward = &_link_of(previous, offset)[1]
    if forward[0] != NULL:
        back = _link_of(forward[0], offset)
    own[0] = previous
    own[1] = forward[0]
    forward[0] = item
    if back != NULL:
        require_same(back[0], previous, text)
        back[0] = item


cdef inline void linked_append(
    void* first, void* last, void* item, void* links, const char* text
) noexcept nogil:
    linked_insert(first, last, item, links, (<kb_link*>last)[0], text)


cdef inline void linked_remove(
    void* first, void* last, void* item, void* links, const char* text
) noexcept nogil:
    cdef ptrdiff_t offset = <char*>links - <char*>item
    cdef kb_link* own = <kb_link*>links
    cdef kb_link* forward = <kb_link*>first
    cdef kb_link* back = <kb_link*>last
    if own[0] != NULL:
        forward = &_link_of(own[0], offset)[1]
    if own[1] != NULL:
        back = _link_of(own[1], offset)
    require_same(forward[0], item, text)
    if back != NULL:
        require_same(back[0], item, text)
        back[0] = own[0]
    forward[0] = own[1]
    own[0] = NULL
    own[1] = NULL
