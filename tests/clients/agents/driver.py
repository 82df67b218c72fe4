"""Agent: one client library in a process of its own, with its orders in JSON lines.

A command is one line {"op": ..., ...} on the program's stdin, its answer one line on stdout:
{"ok": value} or {"error": text}. Commands are answered in order, one at a time. Bytes (keys,
values, headers' values) travel as base64, null is null. What every program understands:

    version                                           -> the library's version
    create   topic partitions configs                 create a topic by the library's own admin
    produce  topic codec records                      -> offsets; acks=all
    read     topic partition offset count [committed] -> records, read without a group; of no
             transaction that is open or was aborted where `committed`
    offset_at topic partition timestamp               -> first offset of that time or later
    write    name topic partitions rate               an idempotent producer writes numbers, in the
             background, "NAME NUMBER" to partition NUMBER % partitions, RATE in a second
    written  name                                     -> how many are acknowledged, and errors
    finish   name                                     -> all numbers acknowledged, and errors
    transactional name id timeout_ms                  a transactional producer, initialised
    begin    name                                     a transaction
    put      name topic partition value               a record in it; its response is waited for
    offsets  name group topic partition offset        an offset of a group in it
    end      name commit                              or, where that is false, abort
    close    name
    join     name group topics strategy [instance]    a member starts, and reads in the background;
             [auto_commit_ms]                         0: commits only by order
    assigned name                                     -> what it has now, what was ever revoked
    take     name                                     -> records that came since the last take
    commit   name                                     commit, synchronously, what was taken
    seek     name topic partition offset
    leave    name                                     close it

A member forgets records of a revoked partition that were not taken: they are the next owner's.
The programs say "unsupported" to orders that their library cannot follow.

Threads: none; one Agent belongs to one test. `close` ends the process that it started, no other.
"""

from __future__ import annotations

import base64
import json
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeVar

from tests.clients.adapters import TIMEOUT_S, Headers, Record

ANSWER_S = 90.0  # more than the programs' own patience of 60 s
STOP_S = 10.0
POLL_S = 0.02

Partition = tuple[str, int]
T = TypeVar("T")


class AgentError(Exception):
    """The library's own error, as it put it; or the program ended."""


class Taken(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    topic: str


class Assignment(NamedTuple):
    now: frozenset[Partition]
    revoked: tuple[Partition, ...]  # in order, with repetitions


class Written(NamedTuple):
    acknowledged: int
    errors: tuple[str, ...]


class Agent(AbstractContextManager["Agent"]):
    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Any) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=dict(env)
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._commands, self._answers = self._process.stdin, self._process.stdout

    # -- the protocol

    def ask(self, op: str, **arguments: object) -> Any:
        self.tell(op, **arguments)
        return self.answer()

    def tell(self, op: str, **arguments: object) -> None:
        """Ask without waiting; each `tell` needs its `answer`."""
        self._commands.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
        self._commands.flush()

    def answer(self) -> Any:
        ready, _, _ = select.select([self._answers], [], [], ANSWER_S)
        if not ready:
            raise AgentError(f"{self.name}: no answer in {ANSWER_S} s")
        line = self._answers.readline()
        if not line:
            raise AgentError(f"{self.name} ended with status {self._process.wait(STOP_S)}")
        answer = json.loads(line)
        if "error" in answer:
            raise AgentError(f"{self.name}: {answer['error']}")
        return answer["ok"]

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End of input ends the program; one that does not listen is killed."""
        try:
            self._commands.close()
        except BrokenPipeError:
            pass  # it was killed with a command on its way
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._answers.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(STOP_S)

    # -- its commands, in Python's types

    def produce(
        self, topic: str, records: Iterable[tuple[int, Record]], codec: str = "none"
    ) -> list[int]:
        """(partition, record) pairs -> their offsets."""
        self.tell_produce(topic, records, codec)
        offsets: list[int] = self.answer()
        return offsets

    def tell_produce(
        self, topic: str, records: Iterable[tuple[int, Record]], codec: str = "none"
    ) -> None:
        lines = [_line(partition, record) for partition, record in records]
        self.tell("produce", topic=topic, codec=codec, records=lines)

    def read(
        self, topic: str, partition: int, offset: int, count: int, *, committed: bool = False
    ) -> list[Taken]:
        lines = self.ask("read", topic=topic, partition=partition, offset=offset, count=count,
                         committed=committed)  # fmt: skip
        return [_taken(line) for line in lines]

    def transactional(self, name: str, id: str, timeout_ms: int = 60_000) -> Transactional:
        self.ask("transactional", name=name, id=id, timeout_ms=timeout_ms)
        return Transactional(self, name)

    def write(self, name: str, topic: str, partitions: int, rate: int) -> None:
        self.ask("write", name=name, topic=topic, partitions=partitions, rate=rate)

    def written(self, name: str) -> Written:
        found = self.ask("written", name=name)
        return Written(found["acknowledged"], tuple(found["errors"]))

    def finish(self, name: str) -> list[int]:
        """All numbers that are acknowledged, in that order; AgentError where one failed."""
        found = self.ask("finish", name=name)
        if found["errors"]:
            raise AgentError(f"{self.name}: {found['errors'][:10]}")
        acknowledged: list[int] = found["acknowledged"]
        return acknowledged

    def join(
        self,
        name: str,
        group: str,
        topics: Sequence[str],
        strategy: str,
        auto_commit_ms: int = 0,
        instance: str = "",
    ) -> None:
        self.ask("join", name=name, group=group, topics=list(topics), strategy=strategy,
                 auto_commit_ms=auto_commit_ms, instance=instance)  # fmt: skip

    def assigned(self, name: str) -> Assignment:
        found = self.ask("assigned", name=name)
        now = frozenset((topic, number) for topic, number in found["now"])
        return Assignment(now, tuple((topic, number) for topic, number in found["revoked"]))

    def take(self, name: str) -> list[Taken]:
        self.tell("take", name=name)
        return self.taken()

    def taken(self) -> list[Taken]:
        """The answer to a `take` that was ordered."""
        return [_taken(line) for line in self.answer()]

    def commit(self, name: str) -> None:
        """Commit what was taken; tried again while a rebalance is in the way, as users do."""
        eventually(lambda: self._commits(name), f"{name} commits")

    def _commits(self, name: str) -> bool:
        try:
            self.ask("commit", name=name)
        except AgentError:
            return False
        return True

    def leave(self, name: str) -> None:
        self.ask("leave", name=name)


class Transactional:
    """A transactional producer of an agent."""

    def __init__(self, agent: Agent, name: str) -> None:
        self._agent, self._name = agent, name

    def begin(self) -> None:
        self._agent.ask("begin", name=self._name)

    def put(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._agent.ask("put", name=self._name, topic=topic, partition=partition,
                        value=encoded(value))  # fmt: skip

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None:
        self._agent.ask("offsets", name=self._name, group=group, topic=topic,
                        partition=partition, offset=offset)  # fmt: skip

    def commit(self) -> None:
        self._agent.ask("end", name=self._name, commit=True)

    def abort(self) -> None:
        self._agent.ask("end", name=self._name, commit=False)

    def close(self) -> None:
        self._agent.ask("close", name=self._name)


def _line(partition: int, record: Record) -> dict[str, object]:
    return {
        "partition": partition,
        "key": encoded(record.key),
        "value": encoded(record.value),
        "headers": [{"key": k, "value": encoded(v)} for k, v in record.headers],
        "timestamp": record.timestamp_ms or int(time.time() * 1000),
    }


def _taken(line: Mapping[str, Any]) -> Taken:
    headers = tuple((pair["key"], decoded(pair["value"])) for pair in line["headers"])
    return Taken(line["partition"], line["offset"], line["timestamp"], decoded(line["value"]),
                 decoded(line["key"]), headers, line.get("topic", ""))  # fmt: skip


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def comes_to_be(found: Callable[[], T], wanted: T, timeout_s: float = TIMEOUT_S) -> None:
    """Asserts what is found, once it is so or the time is over. A late member makes a group that
    has settled rebalance once more; what stays wrong is the broker's and no client's."""
    give_up = time.monotonic() + timeout_s
    while (last := found()) != wanted and time.monotonic() < give_up:
        time.sleep(POLL_S)
    assert last == wanted, f"{last} after {timeout_s} s instead of {wanted}"


def eventually(holds: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    give_up = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > give_up:
            raise TimeoutError(f"not in {timeout_s} s: {what}")
        time.sleep(POLL_S)
