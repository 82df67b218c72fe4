"""The lines of a cluster under test: ports that lead to a broker or to ZooKeeper, until one is cut.

Brokers tell each other the port of a line instead of their own, so what is between two of them
passes here and can be ended by a test without the rights that a firewall asks for. Who has come is
found by the kernel's table of connections: a peer's port belongs to a socket, and a socket to a
process.

A cut line ends its connections, and new ones as soon as they come.
Everything happens on the thread of the loop that is given.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
_PIECE_BYTES: Final = 1 << 16
_TCP_TABLE: Final = Path("/proc/net/tcp")

# Where a line leads; None: to no broker.
Target = Callable[[], Awaitable[tuple[str, int] | None]]


class Line:
    """See the head of this file."""

    def __init__(self, target: Target, may_pass: Callable[[int], bool]) -> None:
        """`may_pass` is asked with the port that a connection comes from."""
        self.port = 0
        self._target = target
        self._may_pass = may_pass
        self._server: asyncio.Server | None = None
        self._open: dict[int, list[asyncio.StreamWriter]] = {}  # by the port they come from

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """End those connections that may not pass any more."""
        for port in [port for port in self._open if not self._may_pass(port)]:
            for end in self._open.get(port, ()):
                end.transport.abort()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for ends in list(self._open.values()):
            for end in ends:
                end.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        ends = self._open[port] = [writer]
        try:
            target = await self._target() if self._may_pass(port) else None
            if target is None:
                return
            there, thither = await asyncio.open_connection(*target)
            ends.append(thither)
            if not self._may_pass(port):  # it was cut meanwhile
                return
            await asyncio.gather(_carry(reader, thither), _carry(there, writer))
        except OSError:
            pass  # one side has gone, and so does the other
        finally:
            if self._open.get(port) is ends:
                del self._open[port]
            for end in ends:
                end.transport.abort()


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while piece := await source.read(_PIECE_BYTES):
        sink.write(piece)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()


def process_of(port: int, line_port: int, pids: Collection[int]) -> int | None:
    """Which of these processes has the connection from this port of loopback to that of a line."""
    inode = _inode_of(port, line_port)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)
        except OSError:
            continue  # it has ended
        for name in names:
            try:
                if os.readlink(f"{folder}/{name}") == wanted:
                    return pid
            except OSError:
                continue  # closed meanwhile
    return None


def _inode_of(port: int, line_port: int) -> str | None:
    # One port may have connections to different places.
    ends = (f":{port:04X}", f":{line_port:04X}")
    for row in _TCP_TABLE.read_text("ascii").splitlines()[1:]:
        fields = row.split()
        if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]) and fields[9] != "0":
            return fields[9]
    return None
