"""The parts of a run that need no cluster: schedules, the router's rules, replicas, passwords."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kbroker.types import TopicPartition
from tests.cluster.meeting import password_of
from tests.cluster.nemeses import NEMESES
from tests.cluster.replicas import compare
from tests.cluster.router import Router
from tests.cluster.schedule import Fault, capped, fixed, may_be_within, schedule

FAULTS: Final = 400
PLACE: Final = TopicPartition("numbers", 0)


# --- schedules ------------------------------------------------------------------------------------


def counted(faults: list[Fault]) -> list[str]:
    """Names, those of faults within another one, too."""
    return [
        each.nemesis
        for fault in faults
        for each in (fault, fault.within)
        if each is not None
    ]  # fmt: skip


def test_a_seed_gives_the_same_faults_and_another_one_others() -> None:
    assert schedule(5, NEMESES, FAULTS) == schedule(5, NEMESES, FAULTS)
    assert schedule(5, NEMESES, FAULTS) != schedule(6, NEMESES, FAULTS)


def test_there_are_as_many_faults_as_asked_for_and_of_every_kind() -> None:
    names = counted(schedule(1, NEMESES, FAULTS))
    assert len(names) == FAULTS
    assert {*names} == {*NEMESES}
    assert min(names.count(name) for name in NEMESES) > FAULTS // len(NEMESES) // 2


def test_no_fault_happens_within_one_that_it_would_disturb() -> None:
    inside = [f for f in schedule(2, NEMESES, FAULTS) if f.within is not None]
    assert len(inside) > FAULTS // 10
    for fault in inside:
        assert fault.within is not None
        inner, outer = NEMESES[fault.within.nemesis], NEMESES[fault.nemesis]
        assert may_be_within(inner, outer)
        assert not {*inner.touches} & {*outer.touches}


def test_a_fixed_list_is_kept_and_can_be_short() -> None:
    faults = [capped(each, 0.5) for each in fixed(("kill", "pause", "kill"), 3, NEMESES)]
    assert counted(faults) == ["kill", "pause", "kill"]
    assert max(each.hold_s for each in faults) <= 0.5


# --- the router -----------------------------------------------------------------------------------


class Lines:
    """Two hosts; a packet that one of them is given can be read at its pipe."""

    def __init__(self) -> None:
        pipes = {host: os.pipe() for host in (1, 2)}
        self._ends = {host: read for host, (read, _) in pipes.items()}
        self._all = [each for pipe in pipes.values() for each in pipe]
        for each in self._ends.values():
            os.set_blocking(each, False)
        self.router = Router({host: write for host, (_, write) in pipes.items()})

    def given(self, host: int) -> list[bytes]:
        try:
            return [bytes((byte,)) for byte in os.read(self._ends[host], 4096)[20::21]]
        except BlockingIOError:
            return []

    def close(self) -> None:
        for each in self._all:
            os.close(each)


def packet(source: int, to: int, mark: bytes) -> bytes:
    header = bytearray(20)
    header[0], header[15], header[19] = 0x45, source, to
    return bytes(header) + mark


@pytest.fixture
def lines() -> Iterator[Lines]:
    made = Lines()
    yield made
    made.close()


def test_packets_pass_and_strangers_go_nowhere(lines: Lines) -> None:
    for each in (packet(1, 2, b"a"), packet(1, 9, b"b"), b"", b"\x60" * 40):
        lines.router.take(each, 0.0)
    assert (lines.given(1), lines.given(2)) == ([], [b"a"])


def test_a_cut_may_be_of_one_direction(lines: Lines) -> None:
    lines.router.set_rules({"drop": [[1, 2]]})
    lines.router.take(packet(1, 2, b"a"), 0.0)
    lines.router.take(packet(2, 1, b"b"), 0.0)
    assert (lines.given(1), lines.given(2)) == ([b"b"], [])
    lines.router.set_rules({})
    lines.router.take(packet(1, 2, b"c"), 0.0)
    assert lines.given(2) == [b"c"]


def test_late_packets_keep_their_order_when_the_delay_ends(lines: Lines) -> None:
    lines.router.set_rules({"delay_ms": [[1, 2, 100]]})
    lines.router.take(packet(1, 2, b"a"), 0.0)
    lines.router.set_rules({})
    lines.router.take(packet(1, 2, b"b"), 0.05)
    assert lines.given(2) == []
    assert lines.router.give_what_is_due(0.09) == pytest.approx(0.01)
    assert lines.router.give_what_is_due(0.1) is None
    assert lines.given(2) == [b"a", b"b"]
    lines.router.take(packet(1, 2, b"c"), 0.2)
    assert lines.given(2) == [b"c"]


# --- replicas -------------------------------------------------------------------------------------


def logs(folder: Path, *segments: bytes) -> Path:
    """A broker's directory with these segments of PLACE."""
    log = folder / f"{PLACE.topic}-{PLACE.partition}"
    log.mkdir(parents=True)
    for number, segment in enumerate(segments):
        (log / f"{number:020}.log").write_bytes(segment)
    return folder


def test_replicas_are_the_same_wherever_their_segments_begin(tmp_path: Path) -> None:
    data_dirs = {
        1: logs(tmp_path / "1", b"abcd", b"ef"),
        2: logs(tmp_path / "2", b"ab", b"cd", b"ef"),
    }
    assert compare(data_dirs, {PLACE: (1, 2)}) == []


@pytest.mark.parametrize(
    ("other", "reported"),
    [
        (b"abcxef", "broker 1 has 6 bytes, broker 2 6, the same up to 3"),
        (b"abcd", "broker 1 has 6 bytes, broker 2 4, the same up to 4"),
        (b"", "broker 1 has 6 bytes, broker 2 0, the same up to 0"),
    ],
)
def test_where_replicas_differ_is_reported(tmp_path: Path, other: bytes, reported: str) -> None:
    data_dirs = {1: logs(tmp_path / "1", b"abcdef"), 2: logs(tmp_path / "2", other)}
    (found,) = compare(data_dirs, {PLACE: (1, 2)})
    assert found.text == f"{PLACE}: {reported}"


# --- ZooKeeper ------------------------------------------------------------------------------------


def test_the_password_of_a_session_is_javas_random() -> None:
    # Java's own: new Random(42 ^ 0xB3415C00L).nextBytes(bytes)
    assert password_of(42).hex() == "c813ee495620c3a68794ef27a239e8a9"
