"""What Apache Kafka's own authorizer decides: Decisions.java in a JVM of its own."""

from __future__ import annotations

import struct
import subprocess
import threading
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

from kbroker.security.acls import Acl
from kbroker.security.rights import Operation, ResourceType
from tests.clients.agents import programs
from tests.support import kafka_classes

# The levels of lines in its log, before the lines.
_LEVELS: Final = ("INFO ", "DEBUG ")


class Question(NamedTuple):
    """`name` is None: is it allowed on some resource of the type?"""

    principal: tuple[str, str]
    host: str
    operation: Operation
    type: ResourceType
    name: str | None


class KafkaDecisions:
    """A context manager; `ask` as often as you like."""

    def __enter__(self) -> Self:
        classes = programs.build("java")
        self._process = subprocess.Popen(
            kafka_classes.command("Decisions", classes=classes, heap="-Xmx512m", log="info"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def answers(self, commands: bytes, count: int) -> list[str]:
        """To `count` questions in these commands: a line of the log, or "true" or "false"."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None

        def feed() -> None:
            # The program writes its answers when its buffer is full, or at the end of its input.
            stdin.write(commands)
            stdin.close()

        feeder = threading.Thread(target=feed)
        feeder.start()
        lines = [stdout.readline().decode().rstrip("\n") for _ in range(count)]
        feeder.join()
        return [_without_level(line) for line in lines]


def _without_level(line: str) -> str:
    for level in _LEVELS:
        line = line.removeprefix(level)
    return line


def configure(super_users: str, allow_if_no_acl: bool) -> bytes:
    return b"C" + _text(super_users) + bytes([allow_if_no_acl])


def replace_acls(acls: Sequence[Acl]) -> bytes:
    return b"A" + struct.pack(">i", len(acls)) + b"".join(map(_acl, acls))


def ask(questions: Iterable[Question]) -> bytes:
    return b"".join(map(_question, questions))


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _acl(acl: Acl) -> bytes:
    pattern, entry = acl
    return (
        bytes([pattern.type, pattern.kind])
        + _text(pattern.name)
        + _text(entry.principal)
        + _text(entry.host)
        + bytes([entry.operation, entry.permission])
    )


def _question(question: Question) -> bytes:
    head = b"T" if question.name is None else b"Q"
    head += _text(question.principal[0]) + _text(question.principal[1]) + _text(question.host)
    head += bytes([question.operation, question.type])
    return head if question.name is None else head + _text(question.name)
