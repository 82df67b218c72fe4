"""Frames as a connection receives them: in pieces of any length, each whole and in order."""

from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

import pytest

from kbroker.peer._frames_in import FramesIn, FrameSizeError, answer_in
from kbroker.peer.address import Address
from kbroker.peer.connection import RECEIVE_BYTES, Connection, Counters, NetworkClientOptions
from kbroker.protocol.wire import ProtocolError


class Receiving(Connection):
    """Keeps the frames, and why it was closed."""

    def __init__(self, **options: Any) -> None:
        self.frames: list[bytes] = []
        self.lost: list[str] = []
        super().__init__(
            Address("h", 1), NetworkClientOptions(**options), Counters(), lambda: None,
            lambda _, error: self.lost.append(error.message),
        )  # fmt: skip

    def _on_frame(self, frame: bytes) -> None:
        self.frames.append(frame)

    def receive(self, piece: bytes) -> None:
        """As a transport does: as much at a time as there is room for."""
        while piece and not self.closed:
            with memoryview(self.get_buffer(-1)) as room:
                taken = min(len(room), len(piece))
                assert taken, "asyncio takes no empty buffer"
                room[:taken] = piece[:taken]
                self.buffer_updated(taken)
            piece = piece[taken:]


def received(pieces: list[bytes], **options: Any) -> Receiving:
    async def within_a_loop() -> Receiving:
        connection = Receiving(**options)
        for piece in pieces:
            connection.receive(piece)
        return connection

    return asyncio.run(within_a_loop())


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


@pytest.mark.parametrize("seed", range(30))
def test_frames_of_all_lengths_in_pieces_of_all_lengths(seed: int) -> None:
    dice = random.Random(seed)
    around = [RECEIVE_BYTES + off for off in (-5, -4, -3, -1, 0, 1, 4)]
    sizes = [dice.choice([4, 5, 100, 30_000, *around, 3 * RECEIVE_BYTES]) for _ in range(20)]
    frames = [dice.randbytes(size) for size in sizes]
    stream = b"".join(map(framed, frames))
    pieces, at = [], 0
    while at < len(stream):
        size = dice.choice([1, 3, 4, 1_000, RECEIVE_BYTES - 1, RECEIVE_BYTES, 1 << 20])
        pieces.append(stream[at : at + size])
        at += size
    connection = received(pieces)
    assert connection.frames == frames
    assert not connection.lost


@pytest.mark.parametrize("size", [-1, 0, 3, 1_000_001])
def test_a_size_out_of_bounds_ends_it_after_earlier_frames(size: int) -> None:
    pieces = [framed(b"whole") + struct.pack(">i", size) + b"and more"]
    connection = received(pieces, response_bytes_max=1_000_000)
    assert connection.frames == [b"whole"]
    assert connection.lost == [f"h:1 sent a frame of {size} bytes"]


def test_a_frame_is_taken_whole_and_once() -> None:
    frames = FramesIn(16, 4, 100)
    assert frames.take() is None
    with memoryview(frames) as room:
        room[:3] = b"\0\0\0"
    frames.note(3)
    assert frames.take() is None and len(frames.get_buffer(-1)) == 13
    with pytest.raises(ValueError, match="14 bytes, where 13 have a place"):
        frames.note(14)
    with pytest.raises(ValueError):
        frames.note(-1)
    with memoryview(frames) as room:
        room[:11] = b"\x05whole" + b"\0\0\0\x20a"
    frames.note(11)
    assert frames.take() == b"whole"
    assert frames.take() is None and len(memoryview(frames)) == 31, "a place of its own"
    frames.get_buffer(-1)[:] = bytes(31)
    frames.note(30)
    assert frames.take() is None
    frames.note(1)
    assert frames.take() == b"a" + bytes(31)
    assert frames.take() is None and len(memoryview(frames)) == 16


def test_a_frame_of_the_largest_size_is_taken_and_no_larger_one() -> None:
    frames = FramesIn(16, 4, 12)
    memoryview(frames)[:] = struct.pack(">i", 12) + bytes(12)
    frames.note(16)
    assert frames.take() == bytes(12) and frames.take() is None
    memoryview(frames)[:4] = struct.pack(">i", 13)
    frames.note(4)
    for _ in range(2):
        with pytest.raises(FrameSizeError) as caught:
            frames.take()
        assert caught.value.args == (13,)


@pytest.mark.parametrize("bounds", [(4, 4, 100), (100, -1, 100), (100, 5, 4)])
def test_bounds_without_sense_are_refused(bounds: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="a room of"):
        FramesIn(*bounds)


def test_an_answer_is_read_after_its_header() -> None:
    frame = struct.pack(">i", 7)
    found = answer_in(frame + b"rest", 7, False, False)
    assert found is not None and found.raw(4) == b"rest"
    found = answer_in(frame + b"\x01\x05\x02ab" + b"rest", 7, True, True)
    assert found is not None and found.raw(4) == b"rest"
    assert answer_in(frame, 8, True, True) is None
    for cut in (frame, frame[:3], frame + b"\x01\x05\x03ab"):
        with pytest.raises(ProtocolError):
            answer_in(cut, 7, True, True)
