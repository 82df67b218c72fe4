"""Frames as a connection receives them: in pieces of any length, each whole and in order."""

from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

import pytest

from kbroker.peer._frame_in import FrameIn
from kbroker.peer.address import Address
from kbroker.peer.connection import RECEIVE_BYTES, Connection, Counters, NetworkClientOptions


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
            with self.get_buffer(-1) as room:
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
    frame = FrameIn(4)
    with pytest.raises(ValueError, match="not whole"):
        frame.take()
    memoryview(frame)[:3] = b"abc"
    assert not frame.note(3)
    with pytest.raises(ValueError, match="lacks fewer"):
        frame.note(2)
    memoryview(frame)[:] = b"d"
    assert frame.note(1)
    assert frame.take() == b"abcd"
    with pytest.raises(ValueError, match="not whole"):
        frame.take()
    with pytest.raises(BufferError):
        memoryview(frame)
    with pytest.raises(ValueError):
        frame.note(0)
    with pytest.raises(ValueError):
        FrameIn(-1)
