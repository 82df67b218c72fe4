"""Where the brokers meet: Apache ZooKeeper in a process of its own, or, without Java, in memory.

Both can be lost and come back, tell the version of a node, and end a session that its client
believes in.
"""

from __future__ import annotations

import logging
import random
import shutil
import signal
import struct
from typing import Final, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat

from kbroker.testing.zookeeper.server import ZooKeeperServer
from lab.jars import ZOOKEEPER
from tests.support.zookeeper import ZooKeeper, end_session

CHROOT: Final = "/cluster"
ANSWER_TIMEOUT_S: Final = 5.0
_PASSWORD_OF: Final = 0xB341_5C00  # what ZooKeeper's passwords of sessions are made with


class Meeting(Protocol):
    @property
    def name(self) -> str: ...
    def address(self, host: str) -> str:
        """For `zookeeper.connect`, of a broker that reaches this at `host`."""
        ...

    def lose(self, dice: random.Random) -> str:
        """No client is served any more; says in which way."""
        ...

    def come_back(self) -> None: ...
    def version(self, path: str) -> object:
        """Another one whenever the node has changed; None: it is not there."""
        ...

    def data(self, path: str) -> bytes | None: ...
    def expire(self, path: str) -> bool:
        """End the session that holds this node; False: there is none."""
        ...

    def close(self) -> None: ...


def java_is_here() -> bool:
    return shutil.which("java") is not None and ZOOKEEPER.present()


# --- Apache ZooKeeper -----------------------------------------------------------------------------


class _Everywhere(ZooKeeper):
    def settings(self) -> dict[str, str]:
        return {**super().settings(), "clientPortAddress": "0.0.0.0"}


class OfJava:
    name = "Apache ZooKeeper"

    def __init__(self) -> None:
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        self._server = _Everywhere()
        self._paused = False
        self._client: KazooClient | None = None
        try:
            self._server.start()
        except BaseException:
            self._server.close()
            raise

    def address(self, host: str) -> str:
        return f"{host}:{self._server.port}{CHROOT}"

    def lose(self, dice: random.Random) -> str:
        self._let_go()
        self._paused = dice.random() < 0.4
        if self._paused:
            self._server.signal(signal.SIGSTOP)
            return "stopped"
        self._server.kill9()
        return "killed"

    def come_back(self) -> None:
        if self._paused:
            self._server.signal(signal.SIGCONT)
        elif not self._server.alive:
            self._server.start()
        self._paused = False

    def version(self, path: str) -> object:
        found = self._read(path)
        return None if found is None else found[1].mzxid

    def data(self, path: str) -> bytes | None:
        found = self._read(path)
        return None if found is None else found[0]

    def expire(self, path: str) -> bool:
        found = self._read(path)
        owner = 0 if found is None else found[1].ephemeralOwner
        if owner:
            end_session(self._server.connect, owner, password_of(owner))
        return bool(owner)

    def _read(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        """None also while no server answers."""
        try:
            return self._connected().get(CHROOT + path)
        except NoNodeError:
            return None
        except (KazooException, KazooTimeoutError, OSError):
            self._let_go()
            return None

    def _connected(self) -> KazooClient:
        if self._client is None:
            client = KazooClient(hosts=self._server.connect, timeout=10.0)
            try:
                client.start(ANSWER_TIMEOUT_S)
            except BaseException:
                client.stop()
                client.close()
                raise
            self._client = client
        return self._client

    def _let_go(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.stop()
            client.close()

    def close(self) -> None:
        if self._paused:
            self._server.signal(signal.SIGCONT)
        self._let_go()
        self._server.close()


def password_of(session: int) -> bytes:
    """What ZooKeeper gave the client of this session: the first 16 bytes of java.util.Random."""
    multiplier, mask = 0x5DEECE66D, (1 << 48) - 1
    state = ((session ^ _PASSWORD_OF) ^ multiplier) & mask
    words = []
    for _ in range(4):
        state = (state * multiplier + 0xB) & mask
        words.append(state >> 16)
    return struct.pack("<4I", *words)


# --- in memory ------------------------------------------------------------------------------------


class InMemory:
    name = "the ZooKeeper in memory"

    def __init__(self) -> None:
        self._server = ZooKeeperServer().start()

    def address(self, host: str) -> str:
        return self._server.connect + CHROOT

    def lose(self, dice: random.Random) -> str:
        self._server.lose()
        return "lost"

    def come_back(self) -> None:
        self._server.come_back()

    def version(self, path: str) -> object:
        return self.data(path)

    def data(self, path: str) -> bytes | None:
        return self._server.data_of(CHROOT + path)

    def expire(self, path: str) -> bool:
        owner = self._server.owner_of(CHROOT + path)
        if owner:
            self._server.expire(owner)
        return bool(owner)

    def close(self) -> None:
        self._server.close()
