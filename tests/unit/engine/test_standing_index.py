"""A fetch that needs an index which is a file: no run waits for it, however long a disk hangs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker.testing.file_faults import Fault, FileFaults
from tests.support.record_batches import build_batch, parse_batches
from tests.support.standing_disk import standing
from tests.unit.engine.wire import Ask, fetch, fetch_frame, fetched_in, produce_one
from tests.unit.net.harness import Rig

SETTINGS = {"segment_bytes": 6_000, "index_interval_bytes": 100}
COUNT = 200
OLD = 20  # in a segment that is full


@pytest.mark.parametrize("last_write_ms", [0, 500])
def test_no_other_waits_with_it(make_rig: Callable[..., Rig], last_write_ms: int) -> None:
    """Nor does who writes to that log, though a slow write of late has it set aside as well."""
    rig = make_rig(handlers=2)
    topic = rig.create("words", **SETTINGS)
    for number in range(COUNT - 1):
        topic.logs[0].append(build_batch([b"%06d" % number]))
    with FileFaults(Fault(("write",), "words-0", delay_ms=last_write_ms)):
        topic.logs[0].append(build_batch([b"%06d" % (COUNT - 1)]))
    waiting, neighbour = rig.client(), rig.client()
    with standing(("open", "0.index")) as disk:
        for _ in range(3):
            waiting.send(fetch_frame(12, [Ask(topic, 0, OLD)]))
        disk.wait()
        for number in range(COUNT, COUNT + 10):
            assert produce_one(neighbour, topic, build_batch([b"next"])).base_offset == number
            answer = fetch(neighbour, 12, [Ask(topic, 0, number)])
            assert parse_batches(answer.only.records or b"")[0].base_offset == number
        assert rig.server.statistics()["requests_set_aside"] >= 1
        assert not waiting.has_bytes()
        disk.go_on()
        for _ in range(3):
            records = fetched_in(12, waiting.receive()).only.records or b""
            assert parse_batches(records)[0].base_offset == OLD


def test_an_index_of_another_disk_is_read_meanwhile(make_rig: Callable[..., Rig]) -> None:
    """All who may stand with a disk do so: what is in the page cache is not asked of them."""
    rig = make_rig(handlers=2)
    hung, fine = (rig.create(name, **SETTINGS) for name in ("hung", "fine"))
    for topic in (hung, fine):
        for number in range(COUNT):
            topic.logs[0].append(build_batch([b"%06d" % number]))
    waiting, neighbour = rig.client(), rig.client()
    with standing(("open", f"hung-0/{0:020}.index")) as disk:
        waiting.send(fetch_frame(12, [Ask(hung, 0, OLD)]))
        disk.wait()
        records = disk.soon(lambda: fetch(neighbour, 12, [Ask(fine, 0, OLD)])).only.records or b""
        assert parse_batches(records)[0].base_offset == OLD
        disk.go_on()
        waiting.receive()


@pytest.mark.parametrize("max_bytes", [1, 1_000])
def test_an_index_in_the_page_cache_is_read_in_a_run(rig: Rig, max_bytes: int) -> None:
    """Batch by batch, or several at a time, without knowing where the next begin."""
    topic = rig.create("words", **SETTINGS)
    for number in range(COUNT):
        topic.logs[0].append(build_batch([b"%06d" % number]))
    client = rig.client()
    offset = OLD
    while offset < COUNT:
        ask = Ask(topic, 0, offset, max_bytes=max_bytes)
        records = fetch(client, 12, [ask]).only.records or b""
        offset = parse_batches(records)[-1].last_offset + 1
    assert rig.server.statistics()["requests_set_aside"] == 0
