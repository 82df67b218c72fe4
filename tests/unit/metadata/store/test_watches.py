from __future__ import annotations

import threading

from kbroker.metadata.store.base import EventType, SessionEvent, WatchEvent, WatchKind
from kbroker.metadata.store.watches import THREAD_NAME, WatchRegistry
from tests.unit.metadata.store.harness import WAIT_S, Inbox


def test_the_queue_is_never_longer_than_the_number_of_watches() -> None:
    registry = WatchRegistry()
    entered, leave = threading.Event(), threading.Event()

    def block(_: WatchEvent) -> None:
        entered.set()
        leave.wait(WAIT_S)

    inbox: Inbox[WatchEvent] = Inbox()
    registry.arm("/block", WatchKind.DATA, block, False)
    registry.arm("/a", WatchKind.DATA, inbox, True)
    registry.arm("/", WatchKind.CHILDREN, inbox, True)
    registry.changed([(EventType.CREATED, "/block")])
    assert entered.wait(WAIT_S)
    for _ in range(1000):
        registry.changed([(EventType.CREATED, "/a"), (EventType.DELETED, "/a")])
    assert registry.queued <= 3
    leave.set()
    # The children watch fired first (for /block), then the data watch; each once, last type.
    assert inbox.wait_for(2) == [
        WatchEvent(EventType.CHILDREN, "/"),
        WatchEvent(EventType.DELETED, "/a"),
    ]
    registry.close()


def test_no_callback_begins_after_cancel() -> None:
    registry = WatchRegistry()
    entered, leave = threading.Event(), threading.Event()

    def block(_: WatchEvent) -> None:
        entered.set()
        leave.wait(WAIT_S)

    cancelled: Inbox[WatchEvent] = Inbox()
    last: Inbox[WatchEvent] = Inbox()
    registry.arm("/a", WatchKind.DATA, block, False)
    watch = registry.arm("/a", WatchKind.DATA, cancelled, False)
    registry.arm("/a", WatchKind.DATA, last, False)
    registry.changed([(EventType.CREATED, "/a")])
    assert entered.wait(WAIT_S)
    watch.cancel()  # its event is queued already
    leave.set()
    last.wait_for(1)
    assert cancelled.items == []
    registry.close()


def test_close_from_a_callback_ends_the_thread() -> None:
    registry = WatchRegistry()
    inbox: Inbox[SessionEvent] = Inbox()

    def close(event: SessionEvent) -> None:
        registry.close()
        inbox(event)

    registry.on_session_event(close)
    registry.session_event(SessionEvent.SUSPENDED)
    assert inbox.wait_for(1) == [SessionEvent.SUSPENDED]
    registry.close()
    assert THREAD_NAME not in {thread.name for thread in threading.enumerate()}


def test_cancel_waits_for_the_callback_that_runs() -> None:
    registry = WatchRegistry()
    entered, leave, ended = threading.Event(), threading.Event(), threading.Event()
    returned = threading.Event()
    had_ended: list[bool] = []

    def slow(_: WatchEvent) -> None:
        entered.set()
        leave.wait(WAIT_S)
        ended.set()

    def cancel() -> None:
        watch.cancel()
        had_ended.append(ended.is_set())
        returned.set()

    watch = registry.arm("/a", WatchKind.DATA, slow, True)
    registry.changed([(EventType.CREATED, "/a")])
    assert entered.wait(WAIT_S)
    canceller = threading.Thread(target=cancel)
    canceller.start()
    returned.wait(0.05)  # it does not return; there is nothing else to see of that
    leave.set()
    canceller.join(WAIT_S)
    assert had_ended == [True]
    registry.close()


def test_a_callback_may_cancel_its_own_watch_and_another() -> None:
    registry = WatchRegistry()
    inbox: Inbox[WatchEvent] = Inbox()
    other = registry.arm("/a", WatchKind.DATA, inbox, True)

    def cancel_both(event: WatchEvent) -> None:
        watch.cancel()
        other.cancel()
        inbox(event)

    watch = registry.arm("/b", WatchKind.DATA, cancel_both, True)
    registry.changed([(EventType.CREATED, "/b"), (EventType.CREATED, "/a")])
    assert inbox.wait_for(1) == [WatchEvent(EventType.CREATED, "/b")]
    registry.close()
    assert len(inbox.items) == 1 and registry.watch_count == 0
