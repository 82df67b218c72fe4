"""The messages page: filters, what is left out, links, the download and the live tail."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.console import message_download, message_tail, search
from kbroker.console.asked import Asked, Ended, Refused
from kbroker.console.message_download import download
from kbroker.console.message_tail import ROWS_PER_S_MAX, columns_of, tail
from kbroker.console.page import Form, Links, Notice
from kbroker.console.pages import messages
from kbroker.console.search import TEXT_CHARS_MAX, Filters, Match, Wanted
from kbroker.limits import CONSOLE_PATH_CHARS_MAX
from kbroker.protocol.record_batch import Record
from tests.unit.console.fake_log import (
    NOW_MS,
    FakeLogs,
    FakePartition,
    asked,
    column,
    facts,
    notices,
    query_of,
    records,
    table,
)


def one_log(*rows: Record) -> FakeLogs:
    log = FakePartition()
    log.add(rows)
    return FakeLogs([log])


ROWS = (
    Record(b"apple", b'{"n": 1}', (("trace", b"abc"),), NOW_MS, 0),
    Record(b"pear", None, (("a=b", None), ("trace", b"")), NOW_MS + 1, 1),
    Record(None, b"\xff\xfe\x00", (), NOW_MS + 2, 2),
    Record(b"", "Grüße, n".encode(), (("trace", b"abd"),), NOW_MS + 3, 3),
)


ALL: Sequence[Callable[[Asked], object]] = (
    messages.make,
    lambda request: next(download(request)),
    lambda request: next(tail(request)),
)


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ({}, [3, 2, 1, 0]),
        ({"key": "p"}, [1, 0]),
        ({"key": "pear", "match": "equals"}, [1]),
        ({"key": "^p|le$", "match": "expression"}, [1, 0]),
        ({"key": "P"}, []),
        ({"key": "(?i)P", "match": "expression"}, [1, 0]),
        ({"value": "n"}, [3, 0]),
        ({"value": "ß"}, [3]),
        ({"value": r"Gr..+e\b", "match": "expression"}, [3]),
        ({"value": r"n.*: \d}", "match": "expression"}, [0]),
        ({"header": "trace"}, [3, 1, 0]),
        ({"header": "trace=ab"}, [3, 0]),
        ({"header": "trace=abc", "match": "equals"}, [0]),
        ({"header": "trace=", "match": "equals"}, [1]),
        ({"header": "a=b"}, [1]),
        ({"header": "trace=ab[cd]$", "match": "expression"}, [3, 0]),
        ({"values": "null"}, [1]),
        ({"values": "not_null"}, [3, 2, 0]),
        ({"key": "p", "value": "n"}, [0]),
        ({"offset": "1"}, [1, 0]),
        ({"offset": "1", "order": "oldest"}, [1, 2, 3]),
        ({"since": str(NOW_MS + 1)}, [3, 2, 1]),
        ({"until": str(NOW_MS + 2)}, [1, 0]),
        ({"since": "2023-11-14T22:13:20.001", "until": "2023-11-14T22:13:20.003"}, [2, 1]),
        ({"since": str(NOW_MS + 9)}, []),
        ({"partition": "0"}, [3, 2, 1, 0]),
        ({"partition": "0-5", "rows": "2"}, [3, 2]),
    ],
)
def test_a_query(query: dict[str, str], offsets: list[int]) -> None:
    assert column(messages.make(asked(one_log(*ROWS), query)), "offset") == offsets


def test_how_payloads_are_drawn() -> None:
    page = messages.make(asked(one_log(*ROWS), {"order": "oldest"}))
    assert column(page, "key") == ["apple", "pear", None, ""]
    assert column(page, "value") == ['{"n": 1}', None, "ff fe 00", "Grüße, n"]
    assert column(page, "headers") == ["trace=abc", "a=b\ntrace=", None, "trace=abd"]
    assert column(page, "drawn_as") == ["text, text", "text, null", "null, hex", "empty, text"]
    indented = messages.make(asked(one_log(*ROWS), {"order": "oldest", "draw": "json"}))
    assert column(indented, "value")[0] == '{\n  "n": 1\n}'
    numbers = messages.make(asked(one_log(*ROWS), {"order": "oldest", "draw": "hex"}))
    assert column(numbers, "key")[0] == "61 70 70 6c 65"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"partition": "x"}, "partition names no partitions"),
        ({"partition": "3-1"}, "partition names no partitions"),
        ({"partition": "7"}, "no such partition"),
        ({"order": "best"}, "order is none of newest, oldest"),
        ({"rows": "501"}, "rows is not a whole number from 1 to 500"),
        ({"offset": "x"}, "offset is not a whole number"),
        ({"since": "soon"}, "since is no moment"),
        ({"since": "9" * 300}, "since is no moment"),
        ({"at": "0"}, "at names no positions"),
        ({"at": "0:" + "9" * 30}, "at names no positions"),
        ({"at": ",".join(f"{n}:1" for n in range(101))}, "at names no positions"),
        ({"key": "x" * (TEXT_CHARS_MAX + 1)}, "more than 1000 characters"),
        ({"key": "(", "match": "expression"}, "the expression of the key: a closing"),
        ({"key": "é", "match": "expression"}, "beyond ASCII"),
        ({"key": "(a{1000}){1000}", "match": "expression"}, "the expression of the key: it"),
    ],
)
def test_a_query_that_is_refused(query: dict[str, str], why: str) -> None:
    with pytest.raises(Refused) as raised:
        messages.make(asked(one_log(*ROWS), query))
    assert why in raised.value.what


def test_keys_alone() -> None:
    """A filter would tell of a value what the page hides."""
    client = one_log(*ROWS)
    page = messages.make(asked(client, {"key": "p"}, messages="keys"))
    names = [each.name for each in table(page, "messages").columns]
    assert names == ["partition", "offset", "timestamp_ms", "key", "key_bytes", "drawn_as"]
    assert column(page, "key") == ["pear", "apple"]
    assert "values and headers are left out: admin.console.messages is keys" in notices(page)
    (form,) = [each for each in page.sections if isinstance(each, Form)]
    assert not {"value", "header", "values"} & {field.name for field in form.fields}
    (lines,) = download(asked(client, {"key": "apple"}, messages="keys"))
    assert json.loads(lines) == {
        "topic": "t", "partition": 0, "offset": 0, "timestamp_ms": NOW_MS, "key": "apple",
    }  # fmt: skip
    for query in ({"value": "x"}, {"header": "x"}, {"values": "null"}):
        for function in ALL:
            with pytest.raises(Refused) as raised:
                function(asked(client, query, messages="keys"))
            assert raised.value.status == 403


def test_no_messages_at_all() -> None:
    for function in ALL:
        with pytest.raises(Refused) as raised:
            function(asked(one_log(*ROWS), messages="off"))
        assert raised.value.status == 403


def test_a_search_gives_how_far_it_looked_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LOOKED_RECORDS_MAX", 1_000)
    log = FakePartition()
    log.add(records(0, 1, value=b"needle"))
    for base in range(1, 5_001, 100):
        log.add(records(base, 100))
    client = FakeLogs([log])
    query: dict[str, str] = {"value": "needle"}
    looked, pages = 0, 0
    while True:
        page = messages.make(asked(client, query))
        looked += int(str(facts(page, "looked")["records_looked_at"]))
        pages += 1
        following = table(page, "messages").next_path
        if not following:
            break
        assert column(page, "offset") == []
        assert "the search has not come to the end of the log" in notices(page)
        query = query_of(following)
        assert query["value"] == "needle"
        assert query["at"] == f"0:{facts(page, 'looked')['until_offset']}"
    assert column(page, "offset") == [0]
    assert looked == 5_001
    assert 4 <= pages <= 6


def test_the_time_of_a_page_is_bounded() -> None:
    log = FakePartition()
    for base in range(0, 5_000, 100):
        log.add(records(base, 100))
    client = FakeLogs([log])
    clock: ManualClock = client.cluster.clock
    page = messages.make(
        asked(client, {"value": "needle"})._replace(pause=lambda: clock.advance(ms=400))
    )
    assert table(page, "messages").next_path
    assert len(client.fetches) < 12


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_a_search_goes_past_a_batch_that_takes_too_long(order: str) -> None:
    log = FakePartition()
    log.add(records(0, 1, value=b"needle"))
    log.add(records(1, 3_000))
    log.add(records(3_001, 1, value=b"needle"))
    client = FakeLogs([log])
    clock: ManualClock = client.cluster.clock
    found: list[Any] = []
    notes: list[Any] = []
    query = {"value": "needle|x", "match": "expression", "order": order}
    for _ in range(9):
        request = asked(client, query)._replace(pause=lambda: clock.advance(ms=400))
        page = messages.make(request)
        for offset, note in zip(column(page, "offset"), column(page, "value"), strict=True):
            (found if note == "needle" else notes).append((offset, note))
        following = table(page, "messages").next_path
        if not following:
            break
        query = query_of(following)
    assert sorted(each[0] for each in found) == [0, 3_001]
    ((offset, note),) = notes
    assert 1 < offset < 3_000
    assert str(note).startswith("offsets 1 to 3000 are not searched to their end")


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_a_batch_without_an_expression_is_read_to_its_end(order: str) -> None:
    """However busy the broker is: the time is that of other threads."""
    log = FakePartition()
    log.add(records(0, 3_000, value=b"needle"))
    client = FakeLogs([log])
    clock: ManualClock = client.cluster.clock
    query = {"value": "needle", "order": order}
    request = asked(client, query)._replace(pause=lambda: clock.advance(ms=400))
    offsets = column(messages.make(request), "offset")
    assert offsets[0] == (2_999 if order == "newest" else 0)


def test_a_search_within_one_record_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with so many headers that an expression takes minutes."""
    monkeypatch.setattr(search, "STEPS_AT_ONCE", 1_000)
    headers = tuple((f"h{n}", b"v" * 100) for n in range(200))
    client = one_log(Record(b"k", b"v", headers, NOW_MS, 0))
    clock: ManualClock = client.cluster.clock
    request = asked(client, {"header": "[a-z]{9}!", "match": "expression"})
    page = messages.make(request._replace(pause=lambda: clock.advance(ms=100)))
    (note,) = column(page, "value")
    assert "not searched to their end" in str(note)
    assert not table(page, "messages").next_path


def test_a_visitor_that_goes_ends_the_page() -> None:
    calls = 0

    def pause() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Ended

    log = FakePartition()
    for base in range(0, 5_000, 1_000):
        log.add(records(base, 1_000))
    client = FakeLogs([log])
    with pytest.raises(Ended):
        messages.make(asked(client, {"value": "needle"})._replace(pause=pause))
    assert len(client.fetches) <= 3


def test_the_beginning_of_a_long_text_is_searched_and_that_is_said() -> None:
    client = one_log(Record(b"k", b"x" * 3_000_000 + b"needle", (), NOW_MS, 0))
    page = messages.make(asked(client, {"value": "needle", "match": "expression"}))
    assert column(page, "offset") == []
    assert any("of 1 long texts the beginning alone was searched" in each for each in notices(page))
    assert column(messages.make(asked(client, {"value": "needle"})), "offset") == [0]


def test_an_expression_gives_the_thread_up() -> None:
    pauses = []
    filters = Filters(Wanted(value="a+b", match=Match.EXPRESSION), lambda: pauses.append(1))
    for _ in range(40):
        filters.match(Record(b"", b"a" * 200_000))
    assert len(pauses) >= 3


def test_a_long_text_is_searched_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "BYTES_AT_ONCE", 8)
    pauses: list[int] = []
    filters = Filters(Wanted(value="needle"), lambda: pauses.append(1))
    for begin in range(40):
        hay = b"n" * begin + b"needle" + b"e" * 30
        assert filters.may_match(hay), begin
        assert filters.match(Record(b"", hay, (), 0)), begin
    assert not filters.may_match(b"needl" * 9) and not filters.may_match(b"")
    pauses.clear()
    assert not filters.may_match(b"n" * 81)
    assert len(pauses) == 10


def test_links_keep_the_query() -> None:
    query = {"key": "a b&c", "match": "equals", "partition": "0", "rows": "1", "draw": "hex"}
    page = messages.make(asked(one_log(*ROWS), query))
    (links,) = [each for each in page.sections if isinstance(each, Links)]
    for title, path in links.items:
        kept = query_of(path)
        assert kept.pop("order", "newest") == ("oldest" if title == "Oldest" else "newest")
        assert kept == query
    assert query_of(page.tail_path) == query
    row = table(messages.make(asked(one_log(*ROWS))), "messages").rows[0]
    alone = messages.make(asked(one_log(*ROWS), query_of(row[1].path)))
    assert column(alone, "offset") == [3]


def test_partitions_beyond_a_page_are_a_link_away() -> None:
    logs = [FakePartition() for _ in range(130)]
    logs[110].add(records(0, 1))
    page = messages.make(asked(FakeLogs(logs)))
    assert column(page, "offset") == []
    (links,) = [each for each in page.sections if isinstance(each, Links)]
    path = dict(links.items)["Partitions 100-129"]
    assert column(messages.make(asked(FakeLogs(logs), query_of(path))), "partition") == [110]


def test_an_address_that_is_too_long_for_a_link_is_not_called_one() -> None:
    """A text in another script takes nine characters of an address for each of its own."""
    logs = [FakePartition() for _ in range(60)]
    for log in logs:
        log.add(records(0, 100, value=("\u4e00" * 900).encode()))
    page = messages.make(asked(FakeLogs(logs), {"value": "\u4e00" * 500, "rows": "1"}))
    assert len(table(page, "messages").next_path) > CONSOLE_PATH_CHARS_MAX
    assert notices(page) == [
        "the log has more, and the address that goes on is too long for a link"
    ]


# --- download -------------------------------------------------------------------------------------


def lines_of(pieces: Iterator[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in b"".join(pieces).splitlines()]


def test_a_download() -> None:
    lines = lines_of(download(asked(one_log(*ROWS), {"order": "oldest"})))
    assert [line["offset"] for line in lines] == [0, 1, 2, 3]
    assert lines[1] == {
        "topic": "t", "partition": 0, "offset": 1, "timestamp_ms": NOW_MS + 1,
        "headers": [{"name": "a=b", "value": None}, {"name": "trace", "value": ""}],
        "key": "pear", "value": None,
    }  # fmt: skip
    assert lines[2]["value_base64"] == "//4A"
    assert lines[2]["key"] is None


def test_a_download_does_nothing_to_a_terminal() -> None:
    """NEXT LINE and CSI of eight bits, DELETE, an override of the direction, a character beyond
    16 bits that is not printed; what is printed stays as it is."""
    text = "a\x1b\x7f\x85\x9b31m\u202e\u2066\U000e0001 \u00e9\u4e16\U0001f600"
    log = one_log(Record(text.encode(), text.encode(), ((text, b""),), NOW_MS, 0))
    line = b"".join(download(asked(log, {"order": "oldest"})))
    assert line.decode().rstrip("\n").isprintable()
    found = json.loads(line)
    assert found["key"] == found["value"] == found["headers"][0]["name"] == text
    assert "\u00e9\u4e16\U0001f600" in line.decode()


def test_a_download_is_bounded_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_download, "DOWNLOAD_BYTES_MAX", 10_000)
    log = FakePartition()
    for base in range(0, 300, 30):
        log.add(records(base, 30))
    client = FakeLogs([log])
    for order in ("newest", "oldest"):
        found: list[int] = []
        query: Mapping[str, str] = {"order": order}
        for _ in range(10):
            *lines, last = lines_of(download(asked(client, query)))
            assert sum(len(json.dumps(line)) for line in lines) <= 10_000
            found += [line["offset"] for line in lines]
            if "ended_early" not in last:
                found.append(last["offset"])
                break
            assert "more than 10000 bytes" in last["ended_early"]
            query = query_of(last["go_on"])
        assert found == sorted(range(300), reverse=order == "newest")


def test_a_long_download_gives_the_thread_up() -> None:
    log = FakePartition()
    for base in range(0, 5_000, 100):
        log.add(records(base, 100))
    client = FakeLogs([log])
    clock: ManualClock = client.cluster.clock
    slow = asked(client, {"value": "needle"})._replace(pause=lambda: clock.advance(ms=150))
    pieces = list(download(slow))
    assert len(pieces) >= 3
    assert not any(pieces)


def test_a_download_fetches_a_large_batch_once() -> None:
    log = FakePartition()
    log.add(records(0, 2_000))
    for order in ("newest", "oldest"):
        client = FakeLogs([log])
        lines = lines_of(download(asked(client, {"order": order, "rows": "1"})))
        assert [line["offset"] for line in lines] == sorted(range(2_000), reverse=order == "newest")
        assert len(client.fetches) <= 8


def test_a_line_that_cannot_fit_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_download, "DOWNLOAD_BYTES_MAX", 1_000)
    made: list[int] = []
    line = message_download._line

    def noted(topic: str, found: Any, **how: bool) -> bytes:
        made.append(found.offset)
        return line(topic, found, **how)

    monkeypatch.setattr(message_download, "_line", noted)
    client = one_log(Record(b"k", b"v", (), NOW_MS, 0), Record(b"k", bytes(2_000), (), NOW_MS, 1))
    first, last = lines_of(download(asked(client, {"order": "oldest"})))
    assert first["offset"] == 0 and made == [0]
    assert query_of(last["go_on"])["at"] == "0:1"


# --- live tail ------------------------------------------------------------------------------------


def looks(items: Iterator[Any], count: int = 1) -> list[Any]:
    """What some looks at the log bring."""
    found: list[Any] = []
    while count:
        item = next(items)
        if item is None:
            count -= 1
        else:
            found.append(item)
    return found


def test_a_tail_begins_at_the_end_and_filters() -> None:
    log = FakePartition()
    log.add(records(0, 5))
    client = FakeLogs([log])
    request: Asked = asked(client, {"value": "x"})
    items = tail(request)
    assert looks(items) == []
    log.add([*records(5, 1, value=b"x1"), *records(6, 1), *records(7, 1, value=b"x2")])
    rows = looks(items)
    place = [each.name for each in columns_of(request)].index("value")
    assert [row[place].value for row in rows] == ["x1", "x2"]
    assert looks(items, 2) == []


def test_a_tail_is_bounded_by_rows_a_second() -> None:
    log = FakePartition()
    client = FakeLogs([log])
    items = tail(asked(client))
    looks(items)
    log.add(records(0, 3 * ROWS_PER_S_MAX))
    found = looks(items, 4)
    assert sum(not isinstance(each, Notice) for each in found) == ROWS_PER_S_MAX
    assert isinstance(found[-1], Notice)
    client.cluster.clock.advance(ms=500)
    log.add(records(3 * ROWS_PER_S_MAX, ROWS_PER_S_MAX))
    found = looks(items, 4)
    assert sum(not isinstance(each, Notice) for each in found) == ROWS_PER_S_MAX // 2


def test_a_tail_that_lags_steps_to_the_end() -> None:
    log = FakePartition()
    client = FakeLogs([log])
    items = tail(asked(client))
    looks(items)
    for base in range(0, 50_000, 1_000):
        log.add(records(base, 1_000))
    before = len(client.fetches)
    *rows, notice = looks(items)
    assert [row[1].value for row in rows][-1] == 49_999
    assert notice.what == "49800 records were left out: 200 a second are drawn"
    assert len(client.fetches) - before <= 3


def test_a_tail_of_committed_records_waits_for_their_end() -> None:
    log = FakePartition()
    client = FakeLogs([log])
    items = tail(asked(client, {"isolation": "read_committed"}))
    looks(items)
    log.add(records(0, 2), transactional=True, producer_id=1, producer_epoch=0)
    log.last_stable = 0
    assert looks(items, 2) == []
    log.last_stable = 2
    assert len(looks(items, 2)) == 2


def test_a_tail_goes_on_where_records_were_deleted() -> None:
    log = FakePartition()
    client = FakeLogs([log])
    items = tail(asked(client))
    looks(items)
    log.start = log.end = 100
    looks(items)
    log.add(records(100, 1))
    assert len(looks(items)) == 1


def test_a_tail_ends() -> None:
    client = FakeLogs([FakePartition()])
    items = tail(asked(client))
    looks(items)
    client.cluster.clock.advance(ms=message_tail.TAIL_MS_MAX)
    assert list(items) == []
