"""Every promise of `store/base.py`, on every implementation."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kbroker.metadata.store.base import (
    MULTI_BYTES_MAX,
    NODE_BYTES_MAX,
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    EventType,
    MetadataStore,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionEvent,
    SessionExpiredError,
    Set,
    WatchEvent,
    WatchKind,
)
from tests.unit.metadata.store.harness import WAIT_S, Harness, Inbox

# --- nodes ----------------------------------------------------------------------------------------


def test_the_root_exists_and_is_empty(store: MetadataStore) -> None:
    assert store.exists("/")
    assert store.children("/") == []
    assert store.get("/").data == b""


def test_a_node_keeps_its_bytes_and_counts_its_changes(store: MetadataStore) -> None:
    store.create("/a", b"\x00\xff one")
    assert store.get("/a")[:2] == (b"\x00\xff one", 0)
    assert store.set("/a", b"two") == 1
    assert store.set("/a", b"", version=1) == 2
    assert store.get("/a")[:2] == (b"", 2)


def test_a_node_created_again_starts_at_version_0(store: MetadataStore) -> None:
    store.create("/a")
    store.set("/a", b"x")
    store.delete("/a")
    assert not store.exists("/a")
    store.create("/a", b"y")
    assert store.get("/a")[:2] == (b"y", 0)


def test_a_node_that_is_created_later_has_a_later_number(
    harness: Harness, store: MetadataStore
) -> None:
    other = harness.session()
    store.create("/a")
    other.create("/b", ephemeral=True)
    store.set("/a", b"x")
    store.multi([Delete("/a"), Create("/a"), Create("/a/c")])
    created = {path: other.get(path).created for path in ("/a", "/a/c", "/b")}
    assert created["/b"] < created["/a"] == created["/a/c"]
    assert created["/a"] == store.children_data("/")["a"].created
    with pytest.raises(NodeExistsError):
        store.create("/a")
    other.delete("/b")
    other.create("/b", ephemeral=True)
    assert other.get("/b").created > created["/a"]


def test_sequential_nodes_are_numbered_upwards(store: MetadataStore) -> None:
    store.create("/a")
    notice = Create("/a/n_", b"x", sequential=True)
    for _ in range(3):
        store.multi([notice, notice])
        store.delete(f"/a/{store.children('/a')[0]}")
    names = store.children("/a")
    assert len(names) == 3 and all(len(each) == 12 and each[2:].isdecimal() for each in names)
    store.multi([notice])
    assert store.children("/a")[:3] == names
    assert all(node.data == b"x" for node in store.children_data("/a").values())


def test_set_with_another_version_changes_nothing(store: MetadataStore) -> None:
    store.create("/a", b"old")
    for version in (-1, 1, 7):
        with pytest.raises(BadVersionError) as raised:
            store.set("/a", b"new", version=version)
        assert raised.value.path == "/a"
    assert store.get("/a")[:2] == (b"old", 0)


def test_delete_with_another_version_changes_nothing(store: MetadataStore) -> None:
    store.create("/a", b"old")
    with pytest.raises(BadVersionError):
        store.delete("/a", version=1)
    store.delete("/a", version=0)
    assert not store.exists("/a")


def test_an_unknown_node_is_an_error_with_its_name(store: MetadataStore) -> None:
    for call in (
        lambda: store.get("/none"),
        lambda: store.set("/none", b""),
        lambda: store.delete("/none"),
        lambda: store.children("/none"),
        lambda: store.children_data("/none"),
        lambda: store.create("/none/child"),
    ):
        with pytest.raises(NoNodeError):
            call()
    assert not store.exists("/none")


def test_a_node_is_created_once(store: MetadataStore) -> None:
    store.create("/a", b"first")
    with pytest.raises(NodeExistsError):
        store.create("/a", b"second")
    assert store.get("/a").data == b"first"


def test_a_node_with_children_is_not_deleted(store: MetadataStore) -> None:
    store.ensure("/a/b")
    with pytest.raises(NotEmptyError):
        store.delete("/a")
    store.delete("/a/b")
    store.delete("/a")


def test_children_are_sorted_names_of_one_level(store: MetadataStore) -> None:
    for path in ("/a", "/a/z", "/a/b", "/a/b/deep", "/ab", "/a/10", "/a/9", "/a/Z"):
        store.create(path, path.encode())
    assert store.children("/a") == ["10", "9", "Z", "b", "z"]
    assert store.children("/") == ["a", "ab"]
    assert {name: node[:2] for name, node in store.children_data("/a").items()} == {
        name: (f"/a/{name}".encode(), 0) for name in ("10", "9", "Z", "b", "z")
    }


def test_many_are_read_at_once_and_those_that_are_not_there_left_out(store: MetadataStore) -> None:
    store.create("/a", b"1")
    store.create("/a/b", b"2")
    store.set("/a/b", b"3")
    assert store.get_many([]) == {}
    found = store.get_many(["/a/b", "/none", "/a"])
    assert {path: node[:2] for path, node in found.items()} == {"/a/b": (b"3", 1), "/a": (b"1", 0)}


def test_thousands_are_read_in_their_order(store: MetadataStore) -> None:
    store.create("/a")
    wanted = [f"/a/{number}" for number in range(1_500)]
    store.multi([Create(path, path.encode()) for path in wanted])
    found = store.get_many([*wanted, "/none", "/a"])
    assert [(path, node.data) for path, node in found.items()] == [
        *((path, path.encode()) for path in wanted),
        ("/a", b""),
    ]


def test_ensure_makes_parents_and_leaves_data_alone(store: MetadataStore) -> None:
    store.create("/a", b"kept")
    store.ensure("/a/b/c")
    store.ensure("/a/b/c")
    assert store.get("/a")[:2] == (b"kept", 0)
    assert store.children("/a/b") == ["c"]


@pytest.mark.parametrize(
    "path",
    ["", "a", "//", "/a/", "/a//b", "/.", "/a/..", "/a\x00b", "/\n", "/\ufffd", "/" + "x" * 2000],
)
def test_paths_that_some_store_would_refuse_are_refused(store: MetadataStore, path: str) -> None:
    for call in (
        lambda: store.create(path),
        lambda: store.get(path),
        lambda: store.children_data(path),
        lambda: store.get_many(["/", path]),
        lambda: store.watch(path, WatchKind.DATA, lambda _: None),
    ):
        with pytest.raises(ValueError):
            call()


def test_sizes_up_to_the_bounds_are_taken_and_larger_ones_refused(store: MetadataStore) -> None:
    store.create("/a", b"x" * NODE_BYTES_MAX)
    assert len(store.get("/a").data) == NODE_BYTES_MAX
    with pytest.raises(ValueError):
        store.set("/a", b"x" * (NODE_BYTES_MAX + 1))
    half = b"y" * (MULTI_BYTES_MAX // 2 - Create("/m1").size_bytes)
    store.multi([Create("/m1", half), Create("/m2", half)])
    with pytest.raises(ValueError):
        store.multi([Set("/m1", half), Set("/m2", half + b"y")])
    assert store.get("/m1").version == 0


@pytest.mark.parametrize("data", [b"", b"x" * 100], ids=["empty", "small"])
def test_a_multi_of_as_many_small_nodes_as_its_bytes_allow_is_taken(
    store: MetadataStore, data: bytes
) -> None:
    """As a topic of thousands of partitions is made of, and an election after a broker's death."""
    creations = [Create("/t")]
    size_bytes = creations[0].size_bytes
    while (
        size_bytes + (more := Create(f"/t/{len(creations):05}", data)).size_bytes < MULTI_BYTES_MAX
    ):
        creations.append(more)
        size_bytes += more.size_bytes
    store.multi(creations)
    assert len(store.children("/t")) == len(creations) - 1
    store.multi([Set(each.path, data, 0) for each in creations[1:]])
    store.multi([Delete(each.path) for each in reversed(creations)])
    assert not store.exists("/t")


# --- multi ----------------------------------------------------------------------------------------


def test_multi_returns_the_versions_and_later_operations_see_earlier_ones(
    store: MetadataStore,
) -> None:
    store.create("/old", b"")
    versions = store.multi(
        [
            Create("/a", b"1"),
            Create("/a/b", b"2"),
            Set("/a", b"3", version=0),
            Check("/a", 1),
            Delete("/old"),
        ]
    )
    assert versions == [0, 0, 1, 1, -1]
    assert store.get("/a")[:2] == (b"3", 1)
    assert not store.exists("/old")


@pytest.mark.parametrize(
    ("bad", "cause"),
    [
        (Create("/kept"), NodeExistsError),
        (Create("/none/child"), NoNodeError),
        (Set("/kept", b"", 5), BadVersionError),
        (Set("/none", b""), NoNodeError),
        (Delete("/kept", 5), BadVersionError),
        (Delete("/parent"), NotEmptyError),
        (Check("/kept", 1), BadVersionError),
        (Check("/none", 0), NoNodeError),
    ],
)
def test_multi_is_all_or_nothing(
    store: MetadataStore, bad: Create | Set | Delete | Check, cause: type[Exception]
) -> None:
    store.create("/kept", b"as it was")
    store.ensure("/parent/child")
    store.create("/gone")
    inbox: Inbox[WatchEvent] = Inbox()
    store.watch("/", WatchKind.CHILDREN, inbox)
    with pytest.raises(MultiError) as raised:
        store.multi([Create("/new"), Delete("/gone"), bad, Create("/new2")])
    assert raised.value.index == 2
    assert type(raised.value.cause) is cause
    assert store.children("/") == ["gone", "kept", "parent"]
    assert store.get("/kept")[:2] == (b"as it was", 0)
    store.create("/sentinel")
    inbox.wait_for(1)  # the failed multi had no event: this is the sentinel's
    assert len(inbox.items) == 1


def test_an_empty_multi_does_nothing(store: MetadataStore) -> None:
    assert store.multi([]) == []


def test_concurrent_compare_and_set_loses_no_update(harness: Harness) -> None:
    """Four writers increment one node; every success counts."""
    first = harness.session()
    first.create("/counter", b"0")

    def increment(store: MetadataStore, times: int) -> None:
        while times:
            node = store.get("/counter")
            try:
                store.set("/counter", b"%d" % (int(node.data) + 1), node.version)
            except BadVersionError:
                continue
            times -= 1

    threads = [threading.Thread(target=increment, args=(harness.session(), 25)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert first.get("/counter")[:2] == (b"100", 100)


# --- sessions and ephemeral nodes -----------------------------------------------------------------


def test_sessions_have_numbers_of_their_own(harness: Harness) -> None:
    seen = {harness.session().session_id, harness.session().session_id}
    harness.reopen()
    seen |= {harness.session().session_id}
    assert len(seen) == 3
    assert min(seen) > 0


def test_an_ephemeral_node_belongs_to_its_session(harness: Harness) -> None:
    ours, theirs = harness.session(), harness.session()
    ours.create("/mine", b"x", ephemeral=True)
    assert theirs.get("/mine").owner == ours.session_id
    assert theirs.get("/mine").ephemeral
    assert not theirs.get("/").ephemeral
    assert theirs.set("/mine", b"y") == 1  # any session may write it; it stays ours
    ours.close()
    assert not theirs.exists("/mine")


def test_an_ephemeral_node_has_no_children(store: MetadataStore) -> None:
    store.create("/e", ephemeral=True)
    with pytest.raises(EphemeralParentError):
        store.create("/e/child")


def test_expiry_takes_only_the_ephemeral_nodes_of_that_session(harness: Harness) -> None:
    ours, theirs = harness.session(), harness.session()
    ours.create("/persistent", b"")
    ours.create("/ours", ephemeral=True)
    theirs.create("/theirs", ephemeral=True)
    harness.expire(ours)
    assert theirs.children("/") == ["persistent", "theirs"]


@pytest.mark.parametrize("by_expiry", [True, False])
def test_after_its_end_a_session_does_nothing_more(harness: Harness, by_expiry: bool) -> None:
    ours, theirs = harness.session(), harness.session()
    if by_expiry:
        harness.expire(ours)
    else:
        ours.close()
    for call in (
        lambda: ours.create("/late"),
        lambda: ours.get("/"),
        lambda: ours.children("/"),
        lambda: ours.multi([Create("/late")]),
        lambda: ours.watch("/", WatchKind.DATA, lambda _: None),
    ):
        with pytest.raises(SessionExpiredError):
            call()
    ours.close()  # again is nothing
    assert theirs.children("/") == []


def test_ephemeral_nodes_do_not_survive_a_restart_and_others_do(harness: Harness) -> None:
    store = harness.session()
    store.create("/e", ephemeral=True)
    store.create("/p", b"data")
    store.set("/p", b"data2")
    harness.reopen()
    store = harness.session()
    assert store.children("/") == ["p"]
    assert store.get("/p")[:2] == (b"data2", 1)


def test_session_events_tell_of_expiry(harness: Harness) -> None:
    ours = harness.session()
    session_events: Inbox[SessionEvent] = Inbox()
    over = threading.Event()

    def note(event: SessionEvent) -> None:
        session_events(event)
        if event is SessionEvent.EXPIRED:
            over.set()

    ours.on_session_event(note)
    harness.expire(ours)
    assert over.wait(WAIT_S)
    # A client that is notified of the end over a network was cut off before.
    assert [event for event in session_events.items if event is not SessionEvent.SUSPENDED] == [
        SessionEvent.EXPIRED
    ]


def test_the_session_after_a_lost_one_is_another(harness: Harness) -> None:
    lost, other = harness.session(), harness.session()
    lost.create("/mine", ephemeral=True)
    harness.expire(lost)
    following = lost.new_session()
    try:
        assert following.session_id not in (lost.session_id, other.session_id)
        following.create("/mine", ephemeral=True)
        assert other.get("/mine").owner == following.session_id
        with pytest.raises(SessionExpiredError):
            lost.get("/mine")
    finally:
        following.close()
    assert not other.exists("/mine")


# --- watches --------------------------------------------------------------------------------------


def test_a_one_shot_data_watch_fires_once(store: MetadataStore) -> None:
    inbox: Inbox[WatchEvent] = Inbox()
    last: Inbox[WatchEvent] = Inbox()
    store.watch("/a", WatchKind.DATA, inbox)
    store.watch("/last", WatchKind.DATA, last)
    store.create("/a")
    store.set("/a", b"1")
    store.delete("/a")
    store.create("/last")
    last.wait_for(1)
    assert [event.path for event in inbox.items] == ["/a"]


@pytest.mark.parametrize(
    ("change", "type_"),
    [
        (lambda store: store.create("/new"), EventType.CREATED),
        (lambda store: store.set("/old", b"1"), EventType.CHANGED),
        (lambda store: store.delete("/old"), EventType.DELETED),
    ],
)
def test_a_data_watch_names_its_event(
    store: MetadataStore, change: Callable[[MetadataStore], object], type_: EventType
) -> None:
    store.create("/old")
    inbox: Inbox[WatchEvent] = Inbox()
    for path in ("/new", "/old"):
        store.watch(path, WatchKind.DATA, inbox)
    change(store)
    path = "/new" if type_ is EventType.CREATED else "/old"
    assert inbox.wait_for(1) == [WatchEvent(type_, path)]


def test_a_children_watch_sees_children_come_and_go_but_not_change(store: MetadataStore) -> None:
    store.ensure("/a/x")
    inbox: Inbox[WatchEvent] = Inbox()
    store.watch("/a", WatchKind.CHILDREN, inbox, persistent=True)
    store.set("/a/x", b"data")
    store.create("/a/x/grandchild")
    assert inbox.items == []
    store.create("/a/y")
    inbox.wait_for(1)
    store.delete("/a/y")
    assert set(inbox.wait_for(2)) == {WatchEvent(EventType.CHILDREN, "/a")}


def test_a_children_watch_needs_its_node_and_ends_with_it(store: MetadataStore) -> None:
    with pytest.raises(NoNodeError):
        store.watch("/a", WatchKind.CHILDREN, lambda _: None)
    store.create("/a")
    inbox: Inbox[WatchEvent] = Inbox()
    store.watch("/a", WatchKind.CHILDREN, inbox, persistent=True)
    store.delete("/a")
    assert inbox.wait_for(1) == [WatchEvent(EventType.DELETED, "/a")]
    store.create("/a")
    last: Inbox[WatchEvent] = Inbox()
    store.watch("/a/b", WatchKind.DATA, last)
    store.create("/a/b")
    last.wait_for(1)
    assert len(inbox.items) == 1


def test_a_persistent_watch_goes_on_until_cancelled(store: MetadataStore) -> None:
    inbox: Inbox[WatchEvent] = Inbox()
    watch = store.watch("/a", WatchKind.DATA, inbox, persistent=True)
    store.create("/a")
    inbox.wait_for(1)
    for count in range(2, 6):
        store.set("/a", b"x")
        inbox.wait_for(count)
    watch.cancel()
    last: Inbox[WatchEvent] = Inbox()
    store.watch("/last", WatchKind.DATA, last)
    store.set("/a", b"unseen")
    store.create("/last")
    last.wait_for(1)
    assert len(inbox.items) == 5


def test_events_of_different_watches_come_in_the_order_of_the_changes(
    harness: Harness,
) -> None:
    ours, theirs = harness.session(), harness.session()
    inbox: Inbox[WatchEvent] = Inbox()
    paths = [f"/{name}" for name in "qwertyuiop"]
    for path in sorted(paths):
        ours.watch(path, WatchKind.DATA, inbox)
    for path in paths:
        theirs.create(path)
    assert [event.path for event in inbox.wait_for(len(paths))] == paths
    assert len(inbox.threads) == 1
    assert threading.current_thread().name not in inbox.threads


def test_changes_while_a_callback_runs_collapse_into_one_event_with_the_last_type(
    store: MetadataStore,
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def block(_: WatchEvent) -> None:
        entered.set()
        leave.wait(WAIT_S)

    inbox: Inbox[WatchEvent] = Inbox()
    store.watch("/block", WatchKind.DATA, block)
    store.watch("/a", WatchKind.DATA, inbox, persistent=True)
    store.create("/block")
    assert entered.wait(WAIT_S)
    store.create("/a")
    for _ in range(100):
        store.set("/a", b"x")
    store.delete("/a")
    leave.set()
    # Over a network some may be on their way still, so the last word may come as a second event.
    session_events = inbox.wait_until(
        lambda events: events[-1:] == [WatchEvent(EventType.DELETED, "/a")]
    )
    assert len(session_events) < 5
    store.create("/a")
    assert len(inbox.wait_for(len(session_events) + 1)) == len(session_events) + 1


def test_a_callback_may_use_the_store_and_may_fail(store: MetadataStore) -> None:
    inbox: Inbox[WatchEvent] = Inbox()

    def react(event: WatchEvent) -> None:
        store.create("/reaction", store.get(event.path).data)
        raise RuntimeError("a callback that fails is not the end of the others")

    store.watch("/a", WatchKind.DATA, react)
    store.watch("/reaction", WatchKind.DATA, inbox)
    store.create("/a", b"ping")
    inbox.wait_for(1)
    assert store.get("/reaction").data == b"ping"


def test_the_end_of_a_session_is_seen_by_the_others(harness: Harness) -> None:
    ours, theirs = harness.session(), harness.session()
    ours.create("/controller", ephemeral=True)
    inbox: Inbox[WatchEvent] = Inbox()
    theirs.watch("/controller", WatchKind.DATA, inbox)
    harness.expire(ours)
    assert inbox.wait_for(1) == [WatchEvent(EventType.DELETED, "/controller")]


def test_watches_end_with_their_session(harness: Harness) -> None:
    ours, theirs = harness.session(), harness.session()
    inbox: Inbox[WatchEvent] = Inbox()
    last: Inbox[WatchEvent] = Inbox()
    ours.watch("/a", WatchKind.DATA, inbox, persistent=True)
    theirs.watch("/last", WatchKind.DATA, last)
    ours.close()
    theirs.create("/a")
    theirs.create("/last")
    last.wait_for(1)
    assert inbox.items == []
