"""A log whose file operations hang: who does not change it goes on, and who publishes as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode
from kbroker.replica._replica import Replica
from tests.support.led_log import open_led_log
from tests.support.record_batches import build_batch
from tests.support.standing_disk import standing
from tests.unit.engine.wire import Ask, fetch, produce_frame
from tests.unit.net.harness import Rig, eventually

ROLLS_AT_BYTES = 2_000
WAIT_NS = 1_000_000


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    log = open_led_log(tmp_path / "t-0", "t", 0, UUID(int=7), {"segment_bytes": ROLLS_AT_BYTES})
    log.set_leadership(1, True, 0, 1)
    yield log
    log.log.close()


def fill(replica: Replica) -> None:
    """Until the next batch begins a segment."""
    while replica.log.size_bytes < ROLLS_AT_BYTES - 1_100:
        replica.append(build_batch([b"x" * 1_000]))


def test_readers_go_on_while_a_segment_is_begun(replica: Replica) -> None:
    fill(replica)
    end = replica.log_end_offset
    batch = build_batch([b"y" * 1_000])
    with standing(("open", f"{end:020}.log")) as disk:
        rolling = disk.begin(lambda: replica.append(batch))
        assert disk.soon(lambda: replica.readable_bytes(0)) > 0
        assert disk.soon(lambda: len(replica.read(0))) > 0
        assert disk.soon(replica.followers) == []
        assert disk.soon(replica.log.statistics)["log_end_offset"] == end
        disk.go_on()
        assert rolling.result().base_offset == end
    assert replica.log.statistics()["rolls"] == 1


def test_another_leads_while_a_write_hangs_and_its_producer_is_answered(replica: Replica) -> None:
    with standing(("write", ".log")) as disk:
        writing = disk.begin(lambda: replica.append(build_batch(), acks=-1))
        assert disk.soon(lambda: replica.set_leadership(2, False, 1, 2, wait_ns=WAIT_NS))
        assert replica.leader_epoch == 1
        disk.go_on()
        assert writing.result().base_offset == 0  # which is written, and in no high watermark
    assert (replica.log_end_offset, replica.high_watermark) == (1, 0)


def test_a_new_leader_waits_for_the_write_and_no_longer_than_it_may(replica: Replica) -> None:
    with standing(("write", ".log")) as disk:
        writing = disk.begin(lambda: replica.append(build_batch()))
        assert not disk.soon(lambda: replica.set_leadership(1, True, 5, 1, wait_ns=WAIT_NS))
        assert replica.leader_epoch == 0
        disk.go_on()
        end = writing.result().last_offset + 1
    assert replica.set_leadership(1, True, 5, 1, wait_ns=WAIT_NS)
    assert replica.epochs.entries == [(0, 0), (5, end)]
    assert replica.append(build_batch()).base_offset == end


def test_a_change_of_topics_does_not_wait_for_a_handler_at_a_log_that_hangs(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(handlers=3)
    hung, other = rig.create("hung"), rig.create("other")
    client, second = rig.client(), rig.client()
    with standing(("write", "hung-0/00000000000000000000.log")) as disk:
        client.send(produce_frame(11, [(hung, {0: build_batch()})]))
        disk.wait()
        disk.soon(lambda: rig.delete("other"))
        disk.soon(lambda: rig.create("third"))
        assert fetch(second, 12, [Ask(other)]).only.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert rig.table.reclaim() > 0  # the handler may look at it still
        disk.go_on()
    eventually(lambda: rig.table.reclaim() == 0)


def test_readers_go_on_while_a_log_is_closed(replica: Replica) -> None:
    replica.append(build_batch())
    with standing(("open", ".index")) as disk:
        closing = disk.begin(replica.log.abandon)
        assert not disk.soon(lambda: replica.log.online)
        assert disk.soon(replica.log.statistics)["log_end_offset"] == 1
        assert disk.soon(replica.followers) == []
        disk.go_on()
        closing.result()
    assert replica.log.active_base_offset < 0
