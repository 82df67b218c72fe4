"""The rules for transactions: the requests of producers, and their effect in the logs.

The logs are those of `safety`: the committed records, in their order. A transaction of the ledger
is one that a producer began. Its records are in several partitions, each partition ends it with a
marker, and `__transaction_state` has the outcome. The rules, after every step:

- A marker has the outcome, the epoch and the partition of a record of `__transaction_state` that
  was committed before it (I4). It ends the records of one transaction (I2), and all markers of a
  transaction have one outcome: the one that its producer asked for and was answered (I1, I9).
- Epochs of a producer id go forward in each log, and so do those that producers are given, but for
  an answer that comes late; no pair is given to two producers (I6). A record is written only to a
  partition of the transaction (I11).
- The last stable offset of a leader is where the first transaction begins that is open below its
  high watermark, and does not go back (I5).
- A read_committed reader gets all records that were committed, and lacks only aborted ones (I1).
  Offsets of a group are those of a transaction that was committed (I8).

At the end no transaction is open (I7), and each transaction that was committed is whole.

The transactions of a partition that was allowed to lose records are not checked any more. If a
partition of `__transaction_state` was, no transaction is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.txn.image import Pair, TransactionImage
from kbroker.coordinator.txn.states import State
from kbroker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kbroker.types import TopicPartition
from tests.simulation.contents import COMMIT, Record, transaction_of

if TYPE_CHECKING:
    from kbroker.replica._replica import Replica
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster
    from tests.simulation.views import Partition, View

GROUP = "g-transactions"
TRIES_MAX = 1_000  # for one commit of offsets
_POINTS = {
    State.EMPTY: "empty",
    State.ONGOING: "ongoing",
    State.PREPARE_COMMIT: "prepare",
    State.PREPARE_ABORT: "prepare",
    State.COMPLETE_COMMIT: "complete",
    State.COMPLETE_ABORT: "complete",
}


@dataclass(eq=False)
class Transaction:
    """A transaction as its producer knows it."""

    number: int
    owner: object
    asked: set[bool] = field(default_factory=set)  # True: to be committed
    answered: bool | None = None  # NONE to one of them
    acknowledged: dict[bytes, TopicPartition] = field(default_factory=dict)
    outcomes: dict[TopicPartition, bool] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"transaction {self.number}"


@dataclass
class _Open:
    """Records of one producer id in one partition, since its last marker."""

    first_offset: int
    offsets: list[int] = field(default_factory=list)
    transactions: dict[Transaction, None] = field(default_factory=dict)


class TransactionLedger:
    """See the head of this file."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.transactions: list[Transaction] = []
        self._by_value: dict[bytes, Transaction] = {}
        self._open: dict[tuple[TopicPartition, int], _Open] = {}
        self._outcomes: dict[TopicPartition, dict[int, bool]] = {}  # by offset
        self._epochs: dict[tuple[TopicPartition, int], int] = {}
        self._states: list[TransactionImage] = []  # as `__transaction_state` has them
        self._pairs: dict[str, Pair | None] = {}  # the newest there, by id
        self._added: set[tuple[Pair, TopicPartition]] = set()
        self._prepared: set[tuple[Pair, bool, TopicPartition]] = set()
        self._given: dict[Pair, object] = {}
        self._shared: set[Pair] = set()
        self._highest: dict[int, int] = {}
        self._floor = -1  # the place of the last offsets that were answered
        # Checked once all logs have been read: one may have the cause of another's record.
        self._markers: list[tuple[TopicPartition, Record]] = []
        self._data: list[tuple[TopicPartition, Record]] = []
        self.committed_count = self.aborted_count = 0

    # --- producers --------------------------------------------------------------------------------

    def begin(self, owner: object) -> Transaction:
        transaction = Transaction(len(self.transactions) + 1, owner)
        self.transactions.append(transaction)
        return transaction

    def value_of(self, transaction: Transaction, value: bytes) -> bytes:
        """The transaction of a record that is sent."""
        self._by_value[value] = transaction
        self._cluster.safety.sent.add(value)
        return value

    def offset_of(self, transaction: Transaction, tries: int) -> int:
        """For a group: each try has another one."""
        offset = transaction.number * TRIES_MAX + tries
        self.value_of(transaction, b"%s/%d" % (GROUP.encode(), offset))
        return offset

    def home_of(self, transactional_id: str) -> TopicPartition:
        count = max(1, len(self._cluster.states))
        return TopicPartition(TRANSACTIONS_TOPIC, partition_for(transactional_id, count))

    def gives(self, pair: Pair, owner: object, by: Running, home: TopicPartition) -> None:
        """A coordinator answers with it, whether that arrives or not."""
        highest, is_new = self._highest.get(pair.producer_id, -1), pair not in self._given
        if self._given.setdefault(pair, owner) is not owner:
            self._shared.add(pair)
            self._fail("a pair is given to one producer", f"{pair} again")
        elif not 0 <= pair.epoch < self._cluster.epoch_max:
            self._fail("a producer has an epoch below the last one", f"{pair}")
        elif is_new and pair.epoch <= highest and not self._is_late(pair, by, home):
            self._fail("epochs that are given go forward", f"{pair} after {highest}")
        self._highest[pair.producer_id] = max(highest, pair.epoch)

    def has(self, transactional_id: str, pair: Pair) -> bool:
        """Whether the id still has it, so that a request with it is not refused."""
        self._cluster.safety.look()
        return self._pairs.get(transactional_id) == pair

    def is_shared(self, pair: Pair) -> bool:
        """Since the log has lost it: a batch of the second producer is a duplicate of another."""
        return pair in self._shared

    def _is_late(self, pair: Pair, by: Running, home: TopicPartition) -> bool:
        """A broker that leads no more was paused or cut off, and answers with a pair that comes
        before every higher one in the log."""
        self._cluster.safety.look()
        epochs = [each.epoch for each in self._states if each.producer_id == pair.producer_id]
        return (
            not self._cluster.safety.leads(by, home)
            and pair.epoch in epochs
            and max(epochs[: epochs.index(pair.epoch)], default=-1) < pair.epoch
        )

    def answers(self, transaction: Transaction, *, committed: bool) -> None:
        """NONE to EndTxn."""
        self._cluster.safety.look()
        if transaction.answered not in (None, committed):
            self._fail("a transaction has one outcome", f"{transaction} is answered twice")
        transaction.answered = committed
        self._has(transaction)

    # --- logs -------------------------------------------------------------------------------------

    def appended(self, view: View, records: Sequence[Record]) -> None:
        """By a leader; its followers may not have them yet."""
        for record in records:
            if record.is_marker:
                self._markers.append((view.name, record))
                self._happens("marker", view)
            elif record.is_transactional:
                self._happens("data" if view.name.topic != OFFSETS_TOPIC else "offsets", view)
            elif view.name.topic == TRANSACTIONS_TOPIC:
                _, image = transaction_of(record.value)
                if image is not None:
                    self._happens(_POINTS[image.state], view)

    def _happens(self, point: str, view: View) -> None:
        self._cluster.fault_points.happens(point, view.node_id)

    def committed(self, partition: Partition, record: Record, offset: int, *, again: bool) -> None:
        """`again`: it was in this log before, and was accepted again after it had been deleted."""
        if partition.name.topic == TRANSACTIONS_TOPIC:
            self._follow(record)
        elif record.is_marker:
            self._end(partition, record, offset)
        elif record.is_transactional:
            self._join(partition, record, offset, again=again)

    def _follow(self, record: Record) -> None:
        transactional_id, image = transaction_of(record.value)
        self._pairs[transactional_id] = None if image is None else image.pair
        if image is None:
            return
        self._states.append(image)
        if image.state is State.ONGOING:
            self._added.update((image.pair, each) for each in image.partitions)
        elif image.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
            committed = image.state is State.PREPARE_COMMIT
            self._prepared.update((image.pair, committed, each) for each in image.partitions)

    def _join(self, partition: Partition, record: Record, offset: int, *, again: bool) -> None:
        self._goes_forward(partition, record)
        self._data.append((partition.name, record))
        key = partition.name, record.producer_id
        found = self._open.setdefault(key, _Open(offset))
        found.offsets.append(offset)
        if not again:
            found.transactions[self._by_value[record.value]] = None

    def _end(self, partition: Partition, record: Record, offset: int) -> None:
        self._goes_forward(partition, record)
        name, committed = partition.name, record.value.startswith(COMMIT)
        found = self._open.pop((name, record.producer_id), None)
        if found is None:
            return
        outcomes = self._outcomes.setdefault(name, {})
        outcomes.update((each, committed) for each in found.offsets)
        if len(found.transactions) > 1:
            several = ", ".join(map(str, found.transactions))
            self._fail("a marker ends one transaction", f"{several} at {offset}", partition)
        for transaction in found.transactions:
            transaction.outcomes[name] = committed
            self.committed_count += committed
            self.aborted_count += not committed
            self._has(transaction, partition)

    def _has(self, transaction: Transaction, partition: Partition | None = None) -> None:
        """The outcomes that it may have."""
        outcomes = self._outcomes_of(transaction)
        if len(outcomes) > 1:
            ends = f"{transaction}: {transaction.outcomes}, answered {transaction.answered}"
            self._fail("a transaction has one outcome", ends, partition)
        elif outcomes == {True} and True not in transaction.asked:
            self._fail("only a producer commits", f"{transaction}", partition)

    def _outcomes_of(self, transaction: Transaction) -> set[bool]:
        """As it was answered, and as it was ended where no marker may be lost."""
        outcomes = {
            outcome
            for name, outcome in transaction.outcomes.items()
            if not self._partition(name).lost
        }
        return outcomes if transaction.answered is None else outcomes | {transaction.answered}

    def _goes_forward(self, partition: Partition, record: Record) -> None:
        key = partition.name, record.producer_id
        before = self._epochs.get(key, -1)
        if record.producer_epoch < before:
            goes = f"{record} after epoch {before}"
            self._fail("epochs go forward in a log", goes, partition)
        self._epochs[key] = max(before, record.producer_epoch)

    def after_look(self) -> None:
        """At all logs."""
        markers, self._markers = self._markers, []
        for name, record in markers:
            committed = record.value.startswith(COMMIT)
            pair = Pair(record.producer_id, record.producer_epoch)
            if (pair, committed, name) not in self._prepared:
                said = f"{record} in {name}"
                self._fail("a marker comes after its outcome", said, self._partition(name))
        data, self._data = self._data, []
        for name, record in data:
            pair = Pair(record.producer_id, record.producer_epoch)
            if (pair, name) not in self._added:
                said = f"{record} in {name}"
                self._fail("a partition is added before writes", said, self._partition(name))

    def _partition(self, name: TopicPartition) -> Partition:
        return self._cluster.safety.partition(name)

    # --- the last stable offset -------------------------------------------------------------------

    def stable(self, partition: Partition, view: View, replica: Replica) -> None:
        """Of a broker's log, when its high watermark has been looked at."""
        stable, mark = replica.last_stable_offset, view.high_watermark
        if not view.leads or not replica.online:
            view.stable_in = -1
            return
        if stable > mark:
            self._fail("the last stable offset is committed", f"{stable} of {mark}", partition)
        if view.stable_in == view.leader_epoch and stable < view.stable:
            goes = f"at broker {view.node_id}: {view.stable}, then {stable}"
            self._fail("the last stable offset does not go back", goes, partition)
        view.stable, view.stable_in = stable, view.leader_epoch
        if mark != len(partition.committed):
            return
        begun = (each.first_offset for (at, _), each in self._open.items() if at == partition.name)
        first = min(begun, default=mark)
        deleted = first < view.log_start or partition.is_deleted(first)
        if stable != first and not deleted:
            at = f"broker {view.node_id} has {stable}, of {mark}, and it is {first}"
            self._fail("the last stable offset is that of an open transaction", at, partition)

    # --- readers ----------------------------------------------------------------------------------

    def read(
        self,
        node_id: int,
        name: TopicPartition,
        records: Sequence[tuple[int, Record]],
        left_out: set[int],
    ) -> None:
        """By a read_committed reader, which leaves these out as aborted."""
        self._cluster.safety.look()
        partition = self._partition(name)
        outcomes = self._outcomes.get(name, {})
        for offset, record in records:
            if record.is_marker or not record.is_transactional:
                continue
            wanted, outcome = offset not in left_out, outcomes.get(offset)
            if outcome is not wanted:
                got = "reads" if wanted else "does not read"
                said = f"a reader {got} {record} at {offset}: {outcome}"
                self._fail("read_committed gets committed records", said, partition)

    def offsets_read(self, home: TopicPartition, offset: int, *, last: bool) -> None:
        """Of the group, stable ones; `last`: nothing is under way any more."""
        self._cluster.safety.look()
        partition = self._partition(home)
        place, value = -1, b"%s/%d" % (GROUP.encode(), offset)
        if offset >= 0:
            place = partition.places.get(value, -1)
            if self._outcomes.get(home, {}).get(place) is not True:
                self._fail("offsets are those of a committed transaction", f"{offset}", partition)
        if last:
            committed = [at for at, how in self._outcomes.get(home, {}).items() if how]
            if place != max(committed, default=-1):
                said = f"{offset} at {place}, and committed are {committed}"
                self._fail("offsets are those of the last transaction", said, partition)

    # --- the end ----------------------------------------------------------------------------------

    def still_open(self) -> str:
        """The first transaction that is; empty: none."""
        for (name, producer_id), found in self._open.items():
            if not self._partition(name).lost and not self.is_excused():
                return f"{name} has a transaction of {producer_id} since {found.first_offset}"
        return ""

    def look_at_all(self) -> None:
        """Nothing is under way any more."""
        for transaction in self.transactions:
            if True not in self._outcomes_of(transaction):
                continue
            for value, name in transaction.acknowledged.items():
                partition = self._partition(name)
                place = partition.places.get(value, -1)
                if self._outcomes.get(name, {}).get(place) is not True:
                    said = f"{transaction} lacks {value!r}"
                    self._fail("a committed transaction is whole", said, partition)

    def is_excused(self) -> bool:
        return any(self._partition(name).lost for name in self._cluster.states)

    def _fail(self, rule: str, detail: str, partition: Partition | None = None) -> None:
        if not self.is_excused():
            self._cluster.safety.fail(rule, detail, partition)
