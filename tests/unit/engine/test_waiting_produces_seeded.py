"""Produces that wait for followers, against a model: seeded histories, every answer foretold.

The model knows of each partition as much as a leader does, and for each request the batches that it
still waits for. A step sends a request, moves a follower, changes leader or in-sync set, deletes a
topic, lets time pass or ends a connection; sometimes no request is woken by a change until a later
one. After each step exactly those requests are answered that the model says, with its codes and
offsets; others wait. Of the pipelined channel a connection has several requests in flight, and an
answer that is known waits for those before it; of the stock one it has one.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from kbroker.core._live_objects import live_counts
from kbroker.engine._hot import HotPath
from kbroker.errors import ErrorCode
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import key_of, produce_frame, produced_in
from tests.unit.net.harness import NODE_ID, Client, Rig, Topic, cold_frame, eventually

VERSION = 13
FOLLOWERS = (2, 3)
STOCK_CLIENTS, PIPELINED_CLIENTS = 8, 2
IN_FLIGHT = 6
STEPS = 150
SOON_MS, NEVER_MS = 600_000, 2**31 - 1
RECORDS = 2  # of each batch
KINDS = ("parked_requests", "watches", "frame_copies", "chunks")


@dataclass
class Part:
    """A partition as its leader should see it."""

    topic: Topic
    index: int
    min_in_sync: int
    end: int = 0
    high_watermark: int = 0
    leads: bool = False
    epoch: int = -1
    led_since: int = -1
    in_sync: tuple[int, ...] = ()
    position: dict[int, int] = field(default_factory=dict)
    appended: list[int] = field(default_factory=list)  # the base offset of each batch
    gone: bool = False

    @property
    def few(self) -> bool:
        return len(self.in_sync) + 1 < self.min_in_sync

    def advance(self) -> None:
        if self.leads and not self.few:
            reached = min([self.end, *(self.position[each] for each in self.in_sync)])
            self.high_watermark = max(self.high_watermark, reached)

    def change(self, leads: bool, epoch: int, in_sync: tuple[int, ...]) -> None:
        if not self.leads or epoch != self.epoch:
            self.position = dict.fromkeys(FOLLOWERS, -1)
        if leads and not self.leads:
            self.led_since = epoch
        self.leads, self.epoch, self.in_sync = leads, epoch, in_sync
        self.advance()
        self.topic.logs[self.index].set_leadership(
            NODE_ID if leads else 2,
            leads,
            epoch,
            len(in_sync) + 1,
            {each: each in in_sync for each in FOLLOWERS} if leads else None,
        )


@dataclass
class Awaited:
    """What one batch is to be answered; no code yet: it waits."""

    part: Part
    code: int | None
    base: int
    led_since: int

    def settle(self) -> None:
        if self.code is not None:
            return
        if self.part.gone:
            self.code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not self.part.leads or self.part.led_since != self.led_since:
            self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif self.part.high_watermark >= self.base + RECORDS:
            few = self.part.few
            self.code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if few else 0


@dataclass
class Line:
    """A connection, and what is in flight on it, oldest first."""

    client: Client
    requests: deque[Waiting] = field(default_factory=deque)
    sent: int = 0


@dataclass
class Waiting:
    line: Line
    first_id: int
    frames: list[list[Awaited]]
    soon: bool

    def batches(self) -> Iterator[Awaited]:
        return (each for frame in self.frames for each in frame)

    @property
    def done(self) -> bool:
        return all(each.code is not None for each in self.batches())

    def end(self, code: int) -> None:
        for each in self.batches():
            each.settle()  # the last look
            if each.code is None:
                each.code = code

    def check(self) -> None:
        """The answers of its frames, in order, and nothing else."""
        for number, frame in enumerate(self.frames):
            correlation_id, answer = produced_in(VERSION, self.line.client.receive())
            assert correlation_id == self.first_id + number
            got = {name: (result.error, result.base_offset) for name, result in answer.items()}
            assert got == {
                key_of(each.part.topic, each.part.index, by_id=True): (each.code, each.base)
                for each in frame
            }


class History:
    def __init__(self, rig: Rig, seed: int, pipelined: bool) -> None:
        self.rig = rig
        self.pipelined = pipelined
        self.random = random.Random(seed)
        self.made = 0
        self.parts = [part for bound in (1, 2) for part in self.create(bound)]
        self.lines = [
            Line(rig.client()) for _ in range(PIPELINED_CLIENTS if pipelined else STOCK_CLIENTS)
        ]
        self.in_flight_most = 0
        self.barrier = rig.client()
        self.answered: Counter[int | None] = Counter()

    def create(self, min_in_sync: int) -> list[Part]:
        self.made += 1
        topic = self.rig.create(f"t{self.made}", 2, min_insync_replicas=min_in_sync)
        parts = [Part(topic, index, min_in_sync) for index in range(2)]
        for part in parts:
            part.change(True, 0, FOLLOWERS)
        return parts

    # --- steps ------------------------------------------------------------------------------------

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (40, self.produce),
            (30, self.follow),
            (12, self.change),
            (3, self.time_passes),
            (4, self.leave),
            (1, self.delete),
        ]
        weights, actions = zip(*steps, strict=True)
        self.random.choices(actions, weights)[0]()
        self.look()

    def look(self) -> None:
        """Requests that are due are answered; all others wait, each parked once."""
        for line in self.lines:
            self.receive(line)
        parked = sum(not each.done for each in self.waiting)
        eventually(lambda: self.rig.hot.statistics()["parked_produces_now"] == parked)
        assert not any(line.client.has_bytes() for line in self.lines)
        for part in self.parts:
            log = part.topic.logs[part.index]
            assert (log.log_end_offset, log.high_watermark) == (part.end, part.high_watermark)

    def receive(self, line: Line) -> None:
        """What is due, up to the first that waits."""
        while line.requests and line.requests[0].done:
            due = line.requests.popleft()
            due.check()
            self.answered.update(batch.code for batch in due.batches())

    @property
    def waiting(self) -> Iterator[Waiting]:
        return (each for line in self.lines for each in line.requests)

    def wake(self, part: Part) -> None:
        self.rig.hot.wake(part.topic.logs[part.index])
        self.settle(part)

    def settle(self, part: Part) -> None:
        for waiting in self.waiting:
            for each in waiting.batches():
                if each.part is part:
                    each.settle()

    def wake_or_not(self, part: Part) -> None:
        if self.random.random() < 0.7:
            self.wake(part)

    def produce(self) -> None:
        most = IN_FLIGHT if self.pipelined else 1
        free = [line for line in self.lines if len(line.requests) < most]
        if not free:
            return
        line = self.random.choice(free)
        soon = self.random.random() < 0.5
        frames: list[list[Awaited]] = []
        sent = b""
        # A train is the pipelined channel's.
        for number in range(self.random.choice((1, 1, 1, 2, 3)) if self.pipelined else 1):
            acks = self.random.choice((-1, -1, -1, 1))
            chosen = self.random.sample(self.parts, self.random.choice((1, 1, 2, 3)))
            entries = [(part, *self.append(part, acks)) for part in chosen]
            frames.append([awaited for _, awaited, _ in entries])
            sent += produce_frame(
                VERSION,
                [(part.topic, {part.index: batch}) for part, _, batch in entries],
                acks=acks,
                timeout_ms=SOON_MS if soon else NEVER_MS,
                correlation_id=line.sent + number,
            )
        waiting = Waiting(line, line.sent, frames, soon)
        line.sent += len(frames)
        line.requests.append(waiting)
        self.in_flight_most = max(self.in_flight_most, len(line.requests))
        # The appends of a run come first, then it is looked who is above the high watermark: what
        # it brings itself, and who waited before.
        for part in self.parts:
            if any(each.part is part for each in waiting.batches()):
                part.advance()
                self.settle(part)
        read = self.rig.total("requests") + len(frames)
        line.client.send(sent)
        eventually(lambda: self.rig.total("requests") == read, "the request is read")
        # The one handler has ended its run: it has announced deadlines, and woken what was due.
        self.barrier.send(cold_frame())
        self.barrier.receive_cold()

    def append(self, part: Part, acks: int) -> tuple[Awaited, bytes]:
        """Or a repetition of the last batch."""
        again = bool(part.appended) and self.random.random() < 0.15
        sequence = (len(part.appended) - again) * RECORDS
        batch = build_batch(
            [b"x"] * RECORDS, producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        code: int | None = None if acks == -1 else 0
        if not part.leads:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif part.few and acks == -1:
            code = ErrorCode.NOT_ENOUGH_REPLICAS
        if code:
            return Awaited(part, code, -1, 0), batch
        if not again:
            part.appended.append(part.end)
            part.end += RECORDS
        return Awaited(part, code, part.appended[-1], part.led_since), batch

    def follow(self) -> None:
        part = self.random.choice(self.parts)
        if not part.leads:
            return
        broker = self.random.choice(FOLLOWERS)
        least = max(0, part.position[broker])
        offset = self.random.choice((part.end, self.random.randrange(least, part.end + 1, RECORDS)))
        part.topic.logs[part.index].note_fetch(broker, offset, 1)
        part.position[broker] = offset
        part.advance()
        self.wake_or_not(part)

    def change(self) -> None:
        part = self.random.choice(self.parts)
        in_sync = self.random.choice((FOLLOWERS, FOLLOWERS, (2,), (3,), ()))
        kind = self.random.choice(("set", "set", "epoch", "role", "there and back"))
        if kind == "set" and part.leads:
            part.change(True, part.epoch, in_sync)
        elif kind == "epoch" or (kind == "set" and not part.leads):
            part.change(part.leads, part.epoch + 1, in_sync)
        elif kind == "role":
            part.change(not part.leads, part.epoch + 1, in_sync)
        else:
            part.change(not part.leads, part.epoch + 1, in_sync)
            part.change(not part.leads, part.epoch + 1, in_sync)
        self.wake_or_not(part)

    def time_passes(self) -> None:
        """To after every deadline that is soon."""
        never_ms = time.monotonic_ns() // 1_000_000 + NEVER_MS // 2
        for tick in self.rig.ticks[:]:
            if HotPath.tick_deadline_ms(tick) < never_ms:
                self.rig.ticks.remove(tick)
                self.rig.hot.expire(tick)
        for each in self.waiting:
            if each.soon:
                each.end(ErrorCode.REQUEST_TIMED_OUT)

    def leave(self) -> None:
        some = [line for line in self.lines if line.requests]
        if not some:
            return
        line = self.random.choice(some)
        if self.random.random() < 0.3:
            line.client.end_sending()
            for waiting in line.requests:
                waiting.end(ErrorCode.REQUEST_TIMED_OUT)
            self.receive(line)
            assert line.client.ended()
        else:
            self.random.choice((Client.reset, Client.close))(line.client)
        self.lines.remove(line)
        self.lines.append(Line(self.rig.client()))

    def delete(self) -> None:
        topic = self.random.choice(self.parts).topic
        gone = [part for part in self.parts if part.topic is topic]
        self.parts = [part for part in self.parts if part.topic is not topic]
        self.rig.delete(topic.name)
        for part in gone:
            part.gone = True
            self.settle(part)
        self.parts += self.create(gone[0].min_in_sync)

    def end(self) -> None:
        self.rig.stop()
        for each in self.waiting:
            each.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            each.check()
        for line in self.lines:
            assert line.client.ended()  # not a byte more than the answers
            line.client.close()
        self.barrier.close()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("pipelined", [False, True])
def test_every_request_is_answered_once_with_its_outcome(
    make_rig: Callable[..., Rig], pipelined: bool, seed: int
) -> None:
    before = {kind: live_counts()[kind] for kind in KINDS}
    rig = make_rig(pipelined=pipelined)
    history = History(rig, seed, pipelined)
    for _ in range(STEPS):
        history.step()
    history.end()
    figures = rig.hot.statistics()
    assert figures["parked_now"] == figures["parked_produces_now"] == figures["parked_bytes"] == 0
    assert {kind: live_counts()[kind] for kind in KINDS} == before
    assert history.in_flight_most == (IN_FLIGHT if pipelined else 1)
    assert history.answered.keys() >= {
        ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT,
    }  # fmt: skip
