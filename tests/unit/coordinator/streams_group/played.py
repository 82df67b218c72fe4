"""Clients that follow the protocol, played against a streams group by a seed.

Answers and requests are lost or come twice, members join, leave and die, several in one process,
topics grow and internal ones are made late, settings change, writes are refused, followers are
late, and coordinators fail over, also to a log that lacks what no client has been answered. After
each act the rules below are checked; at the end all faults stop, and the group has to come to rest.

    no active task is with two members, in no prefix of the log
    no process has a task twice, in no prefix of the log
    no two clients believe that they have an active task
    no commit is accepted from a client that does not have the task
    a member's epoch <= the target's <= the group's, and the group's never goes back
    replay of the log gives the state
    the group comes to rest, and then each task is with one member, in about equal numbers
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kbroker.coordinator.group.messages import CommitAsked
from kbroker.coordinator.streams_group.images import Endpoint, TaskSet, TopologyImage
from kbroker.coordinator.streams_group.messages import HeartbeatAsked, StreamsAnswer
from kbroker.coordinator.streams_group.records import change_of, decode_key
from kbroker.coordinator.streams_group.state import StreamsGroupLabel, StreamsGroupState
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.world import SESSION_MS, topic_of
from tests.unit.coordinator.streams_group.world import (
    EMPTY,
    GROUP,
    HALF,
    REBALANCE_MS,
    STORE,
    Answer,
    World,
    part,
)

TOPOLOGY = TopologyImage(
    0,
    (
        part("0", "t", sinks=("half",)),
        part("1", repartitions=(HALF,), changelogs=(STORE,)),
        part("2", "u"),
    ),
)
INPUTS = {"0": "t", "1": "half", "2": "u"}
# A client that has had no answer for so long has given its tasks up. Time passes in steps of 20 s
# at most, so that is before its session is over.
CAREFUL_MS = SESSION_MS - 21_000
LOST = (
    ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND,
)  # fmt: skip


@dataclass
class Client:
    """A process's thread that follows the protocol."""

    member_id: str
    process_id: str
    epoch: int = 0
    owned: TaskSet = EMPTY
    is_full: bool = True  # its next request says what it owns
    sent_ms: int = 0  # when it sent the request that was answered last
    asking: tuple[Answer, int] | None = None
    is_gone: bool = False

    def lose_all(self) -> None:
        self.epoch, self.owned, self.is_full, self.asking = 0, EMPTY, True, None


class Played:
    """One run by one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        delay_ms = self.dice.choice([0, 0, 3_000])
        self.world = World(standbys=self.dice.randint(0, 2), delay_ms=delay_ms)
        self.world.log.on_append = self._appended
        self.clients: list[Client] = []
        self.made = 0
        self.history: list[str] = []
        self.shadow = StreamsGroupState()
        self.group_epoch = 0
        self.missing: dict[str, int] = {}
        for name in ("t", "u"):
            self.world.create(topic_of(name, self.dice.randint(1, 4)))

    # --- the acts ---

    def run(self, acts: int) -> None:
        for _ in range(acts):
            self._act()
            self._check()
        self._come_to_rest()

    def _act(self) -> None:
        acts = {
            self._beat: 60,
            self._receive: 40,
            self._join: 10,
            self._leave: 4,
            self._move: 2,
            self._die: 2,
            self._make_topics: 8,
            self._grow: 1,
            self._pass: 20,
            self._hold: 6,
            self._release: 14,
            self._refuse: 3,
            self._fail_over: 4,
            self._beside: 20,
            self._commit: 10,
            self._settings: 1,
        }
        (act,) = self.dice.choices(list(acts), list(acts.values()))
        act()

    def _note(self, words: str) -> None:
        self.history.append(words)

    def _alive(self) -> Client | None:
        alive = [each for each in self.clients if not each.is_gone]
        return self.dice.choice(alive) if alive else None

    def _join(self) -> None:
        if sum(not each.is_gone for each in self.clients) >= 5:
            return
        self.made += 1
        client = Client(f"m{self.made}", f"p{self.dice.randint(1, 3)}")
        self.clients.append(client)
        self._note(f"{client.member_id} is there, in {client.process_id}")
        self._send(client)

    def _beat(self) -> None:
        client = self._alive()
        if client is not None and client.asking is None:
            self._send(client)
            if self.dice.random() < 0.7:
                self._answered(client)

    def _send(self, client: Client) -> None:
        says = client.is_full or self.dice.random() < 0.8
        asked = HeartbeatAsked(
            GROUP, client.member_id, client.epoch, owned=client.owned if says else None,
            client_id="client", client_host="/host",
        )  # fmt: skip
        if client.epoch == 0:
            asked = asked._replace(
                rebalance_timeout_ms=REBALANCE_MS, topology=TOPOLOGY, owned=EMPTY,
                process_id=client.process_id, tags=(),
                endpoint=Endpoint(client.process_id, 1),
            )  # fmt: skip
        answer = self.world.begin(asked)
        if self.dice.random() < 0.05:
            self._note(f"{client.member_id} sends twice")
            self.world.begin(asked)  # it reads the first answer
        client.asking = (answer, self.world.clock.monotonic_ms())
        self._note(f"{client.member_id} at {client.epoch} says {asked.owned}")

    def _receive(self) -> None:
        client = self._alive()
        if client is not None:
            self._answered(client)

    def _answered(self, client: Client) -> None:
        if client.asking is None or client.asking[0].waits:
            return
        (answer, sent_ms), client.asking = client.asking, None
        if self.world.clock.monotonic_ms() - sent_ms > CAREFUL_MS:
            client.lose_all()  # it has given this request up
            return
        if self.dice.random() < 0.1:
            self._note(f"{client.member_id} does not get its answer")
            client.is_full = True
            return
        self._take(client, answer.got, sent_ms)

    def _take(self, client: Client, answer: StreamsAnswer, sent_ms: int) -> None:
        self._note(f"{client.member_id} is answered {answer.code.name} {answer.epoch}")
        if answer.code in LOST:
            client.lose_all()
        elif answer.code:
            client.is_full = True
        else:
            assert answer.done is not None
            client.epoch, client.is_full, client.sent_ms = answer.epoch, False, sent_ms
            self.missing.update((each.name, each.partitions) for each in answer.done.missing)
            if answer.done.tasks is not None:
                client.owned = answer.done.tasks

    def _leave(self) -> None:
        client = self._alive()
        if client is None or client.epoch == 0:
            return
        self._note(f"{client.member_id} leaves")
        self.world.begin(HeartbeatAsked(GROUP, client.member_id, -1))
        client.lose_all()
        client.is_gone = True

    def _move(self) -> None:
        """The member comes again in another process."""
        client = self._alive()
        if client is not None:
            client.lose_all()
            client.process_id = f"p{self.dice.randint(1, 3)}"
            self._note(f"{client.member_id} comes again in {client.process_id}")
            self._send(client)

    def _die(self) -> None:
        client = self._alive()
        if client is not None:
            self._note(f"{client.member_id} dies")
            client.lose_all()
            client.is_gone = True

    def _make_topics(self) -> None:
        missing, self.missing = self.missing, {}
        topics = [topic_of(name, count) for name, count in missing.items()]
        there = [each for each in topics if self.world.image.topic(each.name) is None]
        self.world.create(*there)

    def _grow(self) -> None:
        """The topic that has no topics after it."""
        topic = self.world.image.topic("u")
        assert topic is not None
        self.world.create(topic_of("u", min(6, len(topic.partitions) + 1)))

    def _pass(self) -> None:
        self._elapse(self.dice.choice([100, 1_000, 5_000, 20_000]))

    def _elapse(self, ms: int) -> None:
        # Clients count their own time, before the coordinator does.
        for client in self.clients:
            silent_ms = self.world.clock.monotonic_ms() + ms - client.sent_ms
            if client.epoch and silent_ms > CAREFUL_MS:
                client.lose_all()
        self.world.elapse(ms)

    def _hold(self) -> None:
        self.world.log.holds = True

    def _release(self) -> None:
        self.world.log.holds = False
        self.world.log.release()

    def _refuse(self) -> None:
        self.world.log.refuses = self.dice.choice(
            [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE, ErrorCode.NONE]
        )

    def _fail_over(self) -> None:
        log = self.world.log
        if log.held:
            # What the followers do not have may be lost with its coordinator.
            kept = self.dice.randint(min(at for at, _ in log.held) - 1, len(log.batches))
            del log.batches[max(0, kept):]  # fmt: skip
            log.holds = False
            log.release(ErrorCode.NOT_COORDINATOR)
            self.shadow = StreamsGroupState()
            for batch in log.batches:
                self._follow(batch)
            self.group_epoch = 0
        self._note("another coordinator")
        self.world.jobs.clear()
        self.world.fail_over()

    def _beside(self) -> None:
        if self.world.jobs:
            self.world.jobs.pop(0)()

    def _settings(self) -> None:
        self.world.own = self.world.own._replace(standby_replicas=self.dice.randint(0, 2))

    def _commit(self) -> None:
        client = self._alive()
        if client is None or client.epoch == 0:
            return
        subtopology_id = self.dice.choice("012")
        topic = self.world.image.topic(INPUTS[subtopology_id])
        if topic is None:
            return
        index = self.dice.randrange(len(topic.partitions))
        asked = CommitAsked(
            GROUP, client.member_id, None, client.epoch, lambda: [(topic.topic_id, index)], 9
        )
        admitted = self.world.group.admit_commit(asked).code is ErrorCode.NONE
        others = [
            each
            for each in self.clients
            if each is not client and index in each.owned.active.get(subtopology_id, ())
        ]
        mine = index in client.owned.active.get(subtopology_id, ())
        # With the very epoch any partition may be committed, as in Apache Kafka.
        current = self.world.group._state.current_of(client.member_id)
        if admitted and not mine and current.epoch != client.epoch:
            assert not others, f"{client.member_id} commits a task of {others[0].member_id}"

    # --- the rules ---

    def _appended(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """A batch is in the log or is not; the rules hold after each."""
        self._follow(records)
        self._check_log()

    def _follow(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        for key_bytes, value in records:
            key = decode_key(key_bytes)
            assert key is not None
            self.shadow.apply(change_of(key, value))

    def _check_log(self) -> None:
        owners: Counter[tuple[str, int]] = Counter()
        in_process: Counter[tuple[str, str, int]] = Counter()
        for member_id, current in self.shadow.current.items():
            member = self.shadow.members.get(member_id)
            for held in (current.assigned, current.revoking):
                for part_of in held.plain():
                    for id_, some in part_of.items():
                        process = member_id if member is None else member.process_id
                        in_process.update((process, id_, index) for index in some)
                for id_, some in held.plain().active.items():
                    owners.update((id_, index) for index in some)
        assert set(owners.values()) <= {1}, "an active task is with two members"
        assert set(in_process.values()) <= {1}, "a process has a task twice"
        assert self.shadow.epoch == 0 or self.shadow.epoch >= self.group_epoch
        self.group_epoch = self.shadow.epoch

    def _check(self) -> None:
        state = self.world.group._state
        owners: Counter[tuple[str, int]] = Counter()
        for client in self.clients:
            for id_, some in client.owned.active.items():
                owners.update((id_, index) for index in some)
        assert set(owners.values()) <= {1}, "two clients have an active task"
        for member_id in state.members:
            assert state.current_of(member_id).epoch <= state.assignment_epoch
        assert not state.exists or state.assignment_epoch <= state.epoch
        if not self.world.group._unwritten:
            assert self.shadow.values() == state.values(), "the log is not the state"
        assert not self.world.failures.count, "a step has failed"

    def _come_to_rest(self) -> None:
        log = self.world.log
        log.refuses, log.holds = ErrorCode.NONE, False
        log.release()
        self._note("the faults end")
        for _ in range(60):
            self._make_topics()
            for client in self.clients:
                if not client.is_gone:
                    if client.asking is None:
                        self._send(client)
                    if client.asking is not None and not client.asking[0].waits:
                        (answer, sent_ms), client.asking = client.asking, None
                        self._take(client, answer.got, sent_ms)
            while self.world.jobs:
                self.world.jobs.pop(0)()
            self._elapse(2_000)
            self._check()
        state = self.world.group._state
        alive = [each for each in self.clients if not each.is_gone]
        if not alive:
            return
        assert state.label is StreamsGroupLabel.STABLE, f"it does not rest: {state.label}"
        self._check_rest(alive)

    def _check_rest(self, alive: Sequence[Client]) -> None:
        counts = {
            id_: len(topic.partitions)
            for id_, name in INPUTS.items()
            if (topic := self.world.image.topic(name)) is not None
        }
        wanted = {(id_, index) for id_, count in counts.items() for index in range(count)}
        have = [
            {(id_, index) for id_, some in each.owned.active.items() for index in some}
            for each in alive
        ]
        assert sorted(task for each in have for task in each) == sorted(wanted)
        sizes = list(map(len, have))
        processes = Counter(each.process_id for each in alive)
        if set(processes.values()) == {1} and not self.world.own.standby_replicas:
            assert max(sizes) - min(sizes) <= 1, f"not balanced: {sizes}"
