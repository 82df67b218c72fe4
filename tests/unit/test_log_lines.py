"""Lines that clients can provoke: the first of a cause, then one a second with a count."""

from __future__ import annotations

import logging

import pytest

from kbroker._net import UNREAD
from kbroker.handlers.reply import close, lines
from kbroker.limits import LOG_CAUSES_MAX
from kbroker.log_lines import LogLines
from kbroker.server.closes import ClosedConnections
from tests.unit.handlers.support import FakeRequest

SECOND_NS = 1_000_000_000


class Now:
    def __init__(self) -> None:
        self.ns = 5 * SECOND_NS

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def limited(now: Now) -> LogLines:
    return LogLines(logging.getLogger("kbroker.request"), now)


def test_where_there_is_no_room_a_cause_whose_period_is_over_makes_some(
    now: Now, caplog: pytest.LogCaptureFixture
) -> None:
    limited = LogLines(logging.getLogger("kbroker.request"), now, period_ms=60_000)
    for number in range(LOG_CAUSES_MAX):
        assert limited.write(logging.WARNING, f"client {number}", "cut off")
        now.ns += SECOND_NS // 2
    assert limited.write(logging.WARNING, "one more", "cut off"), "the rest share a line"
    assert not limited.write(logging.WARNING, "and another", "cut off")
    assert not limited.write(logging.WARNING, "client 0", "cut off")
    now.ns += 30 * SECOND_NS  # the first ones are due
    caplog.clear()
    assert limited.write(logging.WARNING, "and another", "cut off")
    assert not limited.write(logging.WARNING, "and another", "cut off")
    assert limited.write(logging.WARNING, "client 4", "cut off")
    assert len(limited._causes) == LOG_CAUSES_MAX + 1
    assert caplog.messages == ["cut off", "cut off"]


def test_a_cause_is_logged_once_a_second_with_the_count_left_out(
    limited: LogLines, now: Now, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert limited.write(logging.INFO, "malformed", "first %s", "a")
    assert not any(limited.write(logging.INFO, "malformed", "again") for _ in range(1_000))
    assert limited.write(logging.WARNING, "other", "another cause")
    now.ns += SECOND_NS
    assert limited.write(logging.INFO, "malformed", "next %s", "b")
    now.ns += SECOND_NS
    assert limited.write(logging.INFO, "malformed", "last")
    assert caplog.messages == [
        "first a",
        "another cause",
        "next b (and 1000 like it before)",
        "last",
    ]


def test_causes_are_bounded(limited: LogLines, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for number in range(3 * LOG_CAUSES_MAX):
        limited.write(logging.INFO, f"cause {number}", "line %d", number)
    assert len(caplog.messages) == LOG_CAUSES_MAX + 1


def test_closing_many_connections_for_one_reason_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    requests = [FakeRequest(18, 0, b"") for _ in range(50)]
    for request in requests:
        close(request, "no reason at all", cause="of this test alone")
    assert all(request.closed for request in requests)
    assert len(caplog.messages) == 1
    assert lines.write(logging.INFO, "another of this test", "x")


def test_closes_of_the_network_core_are_logged_by_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counts = {"too long": 0, "malformed": 0}
    closes = ClosedConnections(lambda: counts)
    closes.tell()
    assert not caplog.messages
    counts["malformed"] = 3
    closes.tell()
    closes.tell()
    counts |= {"too long": 1, "malformed": 5}
    closes.tell()
    assert caplog.messages == [
        "closed 3 connections: malformed",
        "closed 1 connection: too long",
        "closed 2 connections: malformed",
    ]


def test_a_client_that_is_cut_off_for_unread_answers_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ClosedConnections(lambda: {UNREAD: 1}).tell()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "queued.max.response.bytes" in record.message


def test_several_lines_a_second_where_they_are_wanted(
    now: Now, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    limited = LogLines(logging.getLogger("kbroker.request"), now, lines_max=3)
    assert [limited.write(logging.INFO, "a", "%d", n) for n in range(5)] == [True] * 3 + [False] * 2
    now.ns += SECOND_NS
    assert limited.write(logging.INFO, "a", "5")
    assert caplog.messages == ["0", "1", "2", "5 (and 2 like it before)"]


def test_text_from_outside_is_escaped_and_short(
    limited: LogLines, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    limited.write(logging.INFO, "a", "group %s", "a\nb" + "c" * 40_000)
    (line,) = caplog.messages
    assert line.startswith("group a\\nbccc")
    assert len(line) < 300
