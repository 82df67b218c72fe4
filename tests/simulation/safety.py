"""The safety rules of a simulated cluster, checked after every step.

- A record is committed once it is below the high watermark of a leader. It then stays at its
  offset: in every log whose high watermark is above it, in the log of every later leader, and in
  the log of every replica that is in sync or eligible.
- The exception: min.insync.replicas or more of its replicas had their power cut, started as lossy
  after a full disk, or had a copy of their data directory registered in their place, and none was
  in sync again since. The last leader leads then (ADR 35), though another may have lost nothing.
- A record that is acknowledged with acks=-1 is committed. Consumers get only committed records.
- A log holds only records that were sent, and no record twice.
- Epochs do not go back, nor does the high watermark of a leader. An epoch has one leader.
- A former controller changes nothing. A broker that is dead, or has restarted since the controller
  saw it, gets into no set. A registration is taken over from a dead process only.

The first violation ends the run. It may be found inside code that catches exceptions, so it is
kept, and raised after the step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kbroker.log.engine.checkpoints import (
    HIGH_WATERMARK_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
)
from kbroker.metadata.controller import records as nodes
from kbroker.metadata.controller.events import BrokersChanged
from kbroker.metadata.image import NO_LEADER, PartitionImage, TopicImage
from kbroker.metadata.store.base import Create, Operation, Set
from kbroker.types import TopicPartition
from tests.simulation.contents import VALUES, Contents, Record, is_of_the_coordinator, value_in
from tests.simulation.loop import LOOKS
from tests.simulation.losses import put_in
from tests.simulation.registrations import Registrations
from tests.simulation.views import Partition, View

if TYPE_CHECKING:
    from kbroker.replica._replica import Replica
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster
    from tests.simulation.store import Session


_TOPIC_PATH_PARTS = nodes.TOPICS.count("/") + 1


class Violation(Exception):
    """`rule` is the name of the violated rule, the same for every seed that violates it."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


class Safety:
    """See the head of this file."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.partitions: dict[TopicPartition, Partition] = {}
        self.sent: set[bytes] = set()
        self.in_order: set[bytes] = set()  # the producers whose records keep their order
        self.given_up: set[bytes] = set()  # but for these: requests with them may come at any time
        self.acknowledged: dict[TopicPartition, dict[bytes, int]] = {}
        self.violation: Violation | None = None
        self.watching = True
        self._live: list[View] = []
        self._registrations = Registrations(cluster)

    def fail(self, rule: str, detail: str, partition: Partition | None = None) -> None:
        """Keep the first violation; none of a partition that was allowed to lose records."""
        if self.violation is None and (partition is None or not partition.lost):
            name = "" if partition is None else f"{partition.name}: "
            now_ms = self._cluster.loop.now_ms
            self.violation = Violation(rule, f"{name}{detail} (at {now_ms} ms)")

    def partition(self, name: TopicPartition) -> Partition:
        partition = self.partitions.get(name)
        if partition is None:
            partition = self.partitions[name] = Partition(name)
        return partition

    # --- events -----------------------------------------------------------------------------------

    def led(self, running: Running, replica: Replica, state: PartitionImage) -> None:
        """A broker has applied a partition's leadership to its replica."""
        partition = self.partition(replica.name)
        view = partition.views.get(running.node_id)
        if view is None:
            value_of = VALUES.get(replica.name.topic, value_in)
            directory = running.broker.directory / str(replica.name)
            contents = Contents(directory, value_of, partition.committed)
            view = partition.views[running.node_id] = View(running.node_id, replica.name, contents)
        view.leads = state.leader == running.node_id
        if view.replica is not replica:
            self._opened(partition, view, replica)
        if state.partition_epoch < view.partition_epoch:
            detail = f"broker {view.node_id}: {view.partition_epoch}, then {state.partition_epoch}"
            self.fail("partition epochs go forward", detail, partition)
        view.partition_epoch = state.partition_epoch
        self._note(partition, view)
        if running.node_id not in state.replicas:
            self._live.remove(view)
            view.replica, view.removed_in = None, state.partition_epoch
        elif view.removed_in is not None and view.removed_in < state.partition_epoch:
            view.removed_in = None  # it is one again, with the log that it had
        if not view.leads:
            if state.leader in partition.undeleted and view.log_start < partition.deleted_to:
                partition.undeleted.add(view.node_id)  # it copies the log of its leader
            return
        leader = partition.leaders.setdefault(state.leader_epoch, running)
        if leader is not running:
            another = "" if leader.node_id != running.node_id else "a later start of "
            detail = f"led by {leader.node_id} and {another}{running.node_id}"
            detail += f" in epoch {state.leader_epoch}"
            self.fail("one leader in an epoch", detail, partition)
        stored = partition.state
        if stored is None or stored.leader_epoch <= state.leader_epoch:
            self._may_lead(partition, view)
        elif state.isr == (running.node_id,):
            # It answers alone, though the store has a newer state that it has not received yet.
            self._may_have_lost(partition, self._missing(partition, view))

    def _opened(self, partition: Partition, view: View, replica: Replica) -> None:
        """After a kill the log must be whole, after a power cut a beginning of it must be left."""
        before = view.contents.records
        place, value_of = view.contents.directory, view.contents.value_of
        view.contents = Contents(place, value_of, partition.committed)
        if view not in self._live:
            self._live.append(view)
        view.replica, view.leader_epoch, view.partition_epoch = replica, replica.leader_epoch, -1
        view.end_offset = replica.log_end_offset
        self._read(partition, view, view.end_offset)
        start = view.log_start = replica.log_start_offset
        view.contents.begins_at(start)
        now = view.contents.records
        view.high_watermark = view.checked = min(replica.high_watermark, view.end_offset)
        view.values = {each.value for each in now[start:]}
        kept = len(before) if view.synced_to is None else view.synced_to
        if view.removed_in is not None:
            kept = 0
        if len(now) < kept or now[start:] != before[start : len(now)]:
            self.fail(
                "records on the disk are not lost",
                f"broker {view.node_id} had {len(before)} records, at least {kept} of them on the"
                f" disk, and has {len(now)}",
                partition,
            )
        view.synced_to = None
        self._goes_on(partition, view)
        self._agrees(partition, view, 0, view.high_watermark)

    def _goes_on(self, partition: Partition, view: View) -> None:
        """Consumers can read all that they could read before."""
        marks = read_offsets(view.contents.directory.parent / HIGH_WATERMARK_FILE)
        wanted = min(marks.get(view.name, 0), view.end_offset)
        if view.high_watermark < wanted and view.removed_in is None:
            detail = f"broker {view.node_id} goes on at {view.high_watermark}, not at {wanted}"
            self.fail("a start goes on at the checkpoint", detail, partition)

    def power_cut(self, node_id: int, name: TopicPartition, synced_to: int) -> None:
        """The broker cannot know whether it has lost records that were not on the disk, so it
        leaves the in-sync and the eligible set at its next start in any case."""
        self.partition(name).views[node_id].synced_to = synced_to
        self._lost_at(self.partition(name), node_id)

    def _starts_lossy(self, node_id: int) -> None:
        """So it leaves the sets, as does the broker in whose place a copy is registered."""
        self.look()
        for partition in self.partitions.values():
            self._lost_at(partition, node_id)

    def _lost_at(self, partition: Partition, node_id: int) -> None:
        view = partition.views.get(node_id)
        partition.losses.add(node_id, () if view is None else view.contents.records)

    def ended(self, running: Running) -> None:
        """The state of its logs is kept, and does not change."""
        for partition in self.partitions.values():
            view = partition.views.get(running.node_id)
            if view is not None and view.replica is not None:
                self._note(partition, view)
                view.replica, view.leads = None, False
                self._live.remove(view)

    def removed(self, running: Running, topic: TopicImage) -> None:
        """The topic's logs at this broker are not checked any more."""
        for each in topic.partitions:
            partition = self.partition(TopicPartition(topic.name, each.index))
            view = partition.views.pop(running.node_id, None)
            if view in self._live:
                self._live.remove(view)

    def written(self, session: Session, operations: Sequence[Operation]) -> None:
        """The store was changed."""
        tree = self._cluster.ensemble.tree
        for operation in operations:
            if isinstance(operation, Create) and self._registrations.note(session, operation):
                self._starts_lossy(session.node_id)
            if isinstance(operation, Set) and operation.path.count("/") == _TOPIC_PATH_PARTS:
                self._placed(operation)
            if not isinstance(operation, Create | Set) or not operation.path.endswith("/state"):
                continue
            topic, index = operation.path.split("/")[3], int(operation.path.split("/")[5])
            partition = self.partition(TopicPartition(topic, index))
            epoch = int(tree.node(nodes.CONTROLLER_EPOCH).data)
            by = json.loads(operation.data)["controller_epoch"]
            if by != epoch:
                self.fail(
                    "a former controller changes nothing",
                    f"written in controller epoch {by}, and it is {epoch}",
                    partition,
                )
            state = nodes.decode_partition(operation.path, operation.data)
            before = partition.state
            self._stored(partition, state)
            self._without_the_dead(partition, state, session)
            if before is not None:
                known = *before.isr, *before.eligible, put_in(before, state)
                self._joins_as_it_is(partition, {*state.isr}.difference(known), session)

    def _placed(self, operation: Set) -> None:
        """A broker that is no replica any more removes its log. A replica whose addition ends is in
        sync."""
        if not operation.path.startswith(nodes.TOPICS):
            return
        topic = operation.path.rpartition("/")[2]
        placed = nodes.decode_topic(operation.path, operation.data)
        for index, holders in enumerate(placed.replicas):
            path = nodes.partition_state_path(topic, index)
            partition = self.partition(TopicPartition(topic, index))
            for node_id, view in partition.views.items():
                if node_id not in holders:
                    view.last_removed_in = self._cluster.ensemble.tree.node(path).version
                    if view.removed_in is None:
                        view.removed_in = view.last_removed_in
            adding = {*placed.adding.get(index, ())}
            partition.removing = {*placed.removing.get(index, ())}
            arrived, partition.adding = (partition.adding - adding) & {*holders}, adding
            node = self._cluster.ensemble.tree.node(path)  # as these operations have left it
            isr = nodes.decode_partition(path, node.data).isr
            if arrived.difference(isr):
                detail = f"{sorted(arrived)} were added, and in sync are {isr}"
                self.fail("a move ends in sync", detail, partition)

    def _stored(self, partition: Partition, state: nodes.PartitionRecord) -> None:
        before, partition.state = partition.state, state
        if before is None:
            return
        if state.leader_epoch < before.leader_epoch or (
            state.leader_epoch == before.leader_epoch
            and state.leader not in (before.leader, NO_LEADER)
        ):
            self.fail(
                "leader epochs go forward",
                f"{before.leader} in {before.leader_epoch}, then {state.leader} in"
                f" {state.leader_epoch}",
                partition,
            )
        for node_id in sorted({*state.isr, *state.eligible}):
            view = partition.views.get(node_id)
            if view is not None:
                self._note(partition, view)
                joins = node_id not in (*before.isr, *before.eligible, put_in(before, state))
                if joins and view.synced_to is None:  # else the request came before its power cut
                    partition.losses.has_all_again(node_id)
                why = f"is in sync or eligible: {state.isr}, {state.eligible}"
                self._has_all(partition, view, why, joins=joins)

    def _without_the_dead(
        self, partition: Partition, state: nodes.PartitionRecord, session: Session
    ) -> None:
        """A controller that has just read the live brokers leaves no other broker in a set, except
        the last one."""
        running = self._cluster.brokers[session.node_id].running
        if running is None or not isinstance(running.events.handling, BrokersChanged):
            return
        if self._cluster.scheduler is not None:
            return  # the live brokers may have changed by now
        ids = self._cluster.ensemble.tree.node(nodes.BROKER_IDS).children
        dead = [each for each in state.isr if str(each) not in ids]
        if dead and len(state.isr) > 1:
            self.fail("the dead leave with the election", f"{dead} are in {state.isr}", partition)

    def _joins_as_it_is(self, partition: Partition, joined: set[int], session: Session) -> None:
        """No leader can know the log of a start that the controller knows, and that has not opened
        its log yet."""
        by = self._cluster.brokers[session.node_id].running
        for node_id in sorted(joined):
            view, joins = partition.views.get(node_id), self._cluster.brokers[node_id].running
            if by is None or joins is None or view is None or view.replica is not None:
                continue
            known = by.controller.image.brokers.get(node_id)
            if known is not None and known.epoch == joins.controller.broker_epoch:
                detail = f"broker {node_id} is in sync, and has just started in epoch {known.epoch}"
                self.fail("a broker joins as the leader saw it", detail, partition)

    def asks_for(self, replica: Replica, joining: set[int]) -> None:
        """A leader asks to add these to its in-sync set. They must have all committed records, as
        any of them may be elected."""
        for node_id, _, end, *_ in replica.followers():
            if node_id in joining and end < replica.high_watermark:
                self.fail(
                    "a joining replica has all committed records",
                    f"broker {node_id} has it to {end} of {replica.high_watermark}",
                    self.partition(replica.name),
                )

    def acknowledges(self, name: TopicPartition, value: bytes, offset: int) -> None:
        """A broker acknowledges the record with acks=-1."""
        self.look()
        partition = self.partition(name)
        if offset >= len(partition.committed) or partition.committed[offset].value != value:
            self.fail(
                "acknowledged is committed",
                f"{value!r} at {offset}, {len(partition.committed)} are committed",
                partition,
            )
        self.acknowledged.setdefault(name, {})[value] = offset

    def leads(self, running: Running, name: TopicPartition) -> bool:
        """In the newest epoch; else it may lack records that a later leader has acknowledged."""
        replica, state = running.replicas.partition(*name), self.partition(name).state
        return (
            replica is not None
            and state is not None
            and (state.leader, state.leader_epoch) == (running.node_id, replica.leader_epoch)
        )

    def consumed(self, name: TopicPartition, offset: int, record: Record) -> None:
        partition = self.partition(name)
        if offset >= len(partition.committed) or partition.committed[offset] != record:
            self.fail("consumers get committed records", f"{record} at {offset}", partition)

    # --- after every step -------------------------------------------------------------------------

    def look(self) -> None:
        """Look for changes of the logs; `led` sees changes of the leadership."""
        for view in self._live:
            replica = view.replica
            if replica is not None and (
                replica.high_watermark != view.high_watermark
                or replica.log_end_offset != view.end_offset
                or replica.log_start_offset != view.log_start
            ):
                self._note(self.partition(view.name), view)
        self._cluster.ledger.after_look()
        self._cluster.share_ledger.after_look()

    def after_step(self) -> None:
        if not self.watching:
            return
        self.look()
        if self.violation is not None:
            raise self.violation

    def _note(self, partition: Partition, view: View) -> None:
        replica = view.replica
        if replica is None:
            return
        mark, end, epoch = replica.high_watermark, replica.log_end_offset, replica.leader_epoch
        if epoch < view.leader_epoch:
            detail = f"at broker {view.node_id}: {view.leader_epoch}, then {epoch}"
            self.fail("leader epochs go forward", detail, partition)
        was_empty = view.end_offset == view.log_start
        if end != view.end_offset:
            self._changed(partition, view, end)
        if replica.log_start_offset != view.log_start:
            self._begins_at(partition, view, replica.log_start_offset, was_empty)
        if mark < view.high_watermark and view.leads:
            detail = f"at broker {view.node_id}: {view.high_watermark}, then {mark}"
            self.fail("a leader's high watermark does not go back", detail, partition)
        before, view.high_watermark, view.leader_epoch = view.high_watermark, mark, epoch
        view.checked = min(view.checked, mark)
        if mark > before:
            self._agrees(partition, view, view.checked, mark)
            view.checked = mark
        self._cluster.ledger.stable(partition, view, replica)
        self._has_deleted(partition, view)

    def _begins_at(self, partition: Partition, view: View, start: int, was_empty: bool) -> None:
        detail = f"at broker {view.node_id}: from {view.log_start} to {start}"
        if start < view.log_start and (view.leads or not was_empty):  # else by a whole batch
            self.fail("a log's start does not go back", detail, partition)
        view.log_start = start
        if start > len(partition.committed):
            self.fail("only committed records are deleted", detail, partition)
        view.contents.begins_at(start)
        view.values = {each.value for each in view.contents.records[start:]}

    def _has_deleted(self, partition: Partition, view: View) -> None:
        """The deletion that was answered, except at a broker that was not there to receive it."""
        if view.log_start >= partition.deleted_to:
            partition.undeleted.discard(view.node_id)
            return
        knows = (
            view.leader_epoch >= partition.deleted_in and view.node_id not in partition.undeleted
        )
        if view.leads and knows:
            detail = f"{view.log_start} to {partition.deleted_to} are back at {view.node_id}"
            self.fail("deleted records do not come back", detail, partition)

    def registered(self, running: Running) -> dict[int, int]:
        """The epochs of the brokers that its replicas know: the image may not be published yet."""
        return dict(running._replication._in_sync._broker_epochs)

    def deleted(
        self, running: Running, name: TopicPartition, start: int, before: Mapping[int, int]
    ) -> None:
        """A broker answers that the logs of all live replicas begin there. `before`: the brokers
        when the request came; the low watermark may be older than one that registers later."""
        self.look()
        partition, state = self.partition(name), running.states[name]
        now = self.registered(running)
        partition.deleted_to = max(partition.deleted_to, start)
        partition.deleted_in = max(partition.deleted_in, state.leader_epoch)
        for node_id, broker in self._cluster.brokers.items():
            there, view = broker.running, partition.views.get(node_id)
            epoch = now.get(node_id)
            is_live = there is not None and epoch == there.controller.broker_epoch
            if not is_live or before.get(node_id) != epoch:
                partition.undeleted.add(node_id)  # be it that it has no log yet
            elif view is not None and view.is_known_in(state) and view.log_start < start:
                detail = f"to {start}, and the log at broker {node_id} begins at {view.log_start}"
                self.fail("records are deleted at all live replicas", detail, partition)

    def _changed(self, partition: Partition, view: View, end: int) -> None:
        start = 0 if view.replica is None else view.replica.log_start_offset
        if start > view.end_offset:  # it has begun again there, without its earlier records
            view.contents.begins_at(start)
            view.values = set()
        if end < view.end_offset:
            if end < view.high_watermark:
                self.fail(
                    "nothing committed is cut off",
                    f"at broker {view.node_id}: from {view.end_offset} to {end}, with a high"
                    f" watermark of {view.high_watermark}",
                    partition,
                )
            view.contents.follow(end)
            self._point_has_fallen(partition, view, end)
            if view.replica is not None:
                self._look_after_cut(partition, view, view.replica)
            view.values = {each.value for each in view.contents.records[view.log_start :]}
        records = self._read(partition, view, end)
        if view.leads:
            self._cluster.ledger.appended(view, records)
            self._cluster.share_ledger.appended(view, records)
        if self._registrations.is_copied(view.node_id):
            partition.losses.add(view.node_id, records)
        for record in records:
            state = is_of_the_coordinator(record.value)
            if record.value not in self.sent and not state:
                self.fail("nothing is invented", f"{record}", partition)
            if record.value in view.values and not state:
                first = [each.value for each in view.contents.records].index(record.value)
                if partition.is_deleted(first):
                    continue
                self.fail("no record is stored twice", f"{record}", partition)
            view.values.add(record.value)
        view.end_offset = end

    def _read(self, partition: Partition, view: View, end: int) -> list[Record]:
        """The new records in the files of a log that ends there."""
        try:
            return view.contents.follow(end)
        except (AssertionError, OSError) as error:
            self.fail("a log's files are whole", f"broker {view.node_id}: {error}", partition)
            return []

    def _point_has_fallen(self, partition: Partition, view: View, end: int) -> None:
        """Otherwise a later start does not read records that were appended after a truncation."""
        if self._cluster.scheduler is not None:
            return  # it may have risen again since
        file = view.contents.directory.parent / RECOVERY_POINT_FILE
        point = read_offsets(file).get(view.name, 0)
        if point > end:
            cut = f"broker {view.node_id}: the log ends at {end}, and its recovery point is {point}"
            self.fail("a cut takes its recovery point with it", cut, partition)

    def _look_after_cut(self, partition: Partition, view: View, replica: Replica) -> None:
        broker = self._cluster.brokers[view.node_id]
        running = broker.running or broker.starting
        if running is not None:  # a thread of it may be at the cut
            call = partial(self._producers_are_cut, partition, view.node_id, replica)
            running.process.work(call, LOOKS)

    def _producers_are_cut(self, partition: Partition, node_id: int, replica: Replica) -> None:
        """Otherwise a batch that was truncated is taken for a duplicate when it comes again."""
        _, entries = replica.log.producer_entries()
        end = replica.log_end_offset
        for each in entries:
            if each.last_offset >= end and replica.online:
                detail = f"broker {node_id} knows {each}, and its log ends at {end}"
                self.fail("a cut takes producers with it", detail, partition)

    def _agrees(self, partition: Partition, view: View, start: int, end: int) -> None:
        """Its high watermark has passed these."""
        for offset in range(start, min(end, len(view.contents.records))):
            record = view.contents.records[offset]
            if offset >= len(partition.committed):
                again = record.value in partition.places
                partition.places[record.value] = offset
                partition.committed.append(record)
                self._in_order(partition, record, offset)
                self._cluster.ledger.committed(partition, record, offset, again=again)
                self._cluster.share_ledger.committed(partition, record)
                self._committed(partition, view)
            elif partition.committed[offset] != record:
                self.fail(
                    "replicas agree below the high watermark",
                    f"broker {view.node_id} has {record} at {offset}, where"
                    f" {partition.committed[offset]} is committed",
                    partition,
                )

    def _in_order(self, partition: Partition, record: Record, offset: int) -> None:
        """An idempotent producer's records, by their numbers and by their sequences."""
        if record.is_transactional and record.sequence < 0:
            return  # a marker, or offsets of a group
        pair = record.producer_id, record.producer_epoch
        before, at = partition.sequences.get(pair, (-1, offset))
        partition.sequences[pair] = (record.sequence, offset)
        deleted = partition.is_deleted(at)
        # A leader that does not know a producer takes any batch, where there may be several.
        follows = record.sequence == before + 1 or (before < 0 and self._cluster.pipelined)
        if record.producer_id >= 0 and not follows and not deleted:
            detail = f"{record.sequence} of {record.producer_id}, after {before}"
            self.fail("a producer's sequences have no gap", detail, partition)
        producer, _, number = record.value.partition(b"-")
        if producer not in self.in_order:
            return
        last = partition.last_numbers.get(producer, -1)
        partition.last_numbers[producer] = max(int(number), last)
        if int(number) <= last and not deleted and record.value not in self.given_up:
            self.fail("in the order of sending", f"{record} after {last}", partition)

    def _committed(self, partition: Partition, by: View) -> None:
        if not by.leads:
            detail = f"at broker {by.node_id}: {len(partition.committed)}"
            self.fail("a follower's high watermark is its leader's", detail, partition)
        state = partition.state
        waited_for = () if state is None else (*state.isr, *state.eligible)
        for node_id, view in partition.views.items():
            later = view.leads and view.leader_epoch > by.leader_epoch
            if view is not by and (later or node_id in waited_for):
                if view.end_offset < len(partition.committed):
                    self._note(partition, view)
                self._has_all(partition, view, f"is waited for by broker {by.node_id}")

    def _missing(self, partition: Partition, view: View) -> Record | None:
        """The first record that is committed and not there."""
        committed, records = partition.committed, view.contents.records
        if len(records) >= len(committed) and records[: len(committed)] == committed:
            return None
        return next(
            record
            for offset, record in enumerate(committed)
            if offset >= len(records) or records[offset] != record
        )

    def _has_all(self, partition: Partition, view: View, why: str, *, joins: bool = True) -> None:
        """`joins`: else it may have lost records to a power cut, as long as it does not lead."""
        missing = self._missing(partition, view)
        if missing is None:
            return
        if joins or view.node_id not in partition.losses.of(missing):
            self.fail(
                "every possible leader has all committed records",
                f"{missing} is not with broker {view.node_id}, which {why}",
                partition,
            )

    def _may_lead(self, partition: Partition, view: View) -> None:
        missing = self._missing(partition, view)
        if missing is None:
            partition.losses.has_all_again(view.node_id)
            return
        lost_at = self._may_have_lost(partition, missing)
        self.fail(
            "a leader has all committed records",
            f"{missing} is not with broker {view.node_id}, which leads; it may have been lost"
            f" at brokers {sorted(lost_at)}",
            partition,
        )

    def _may_have_lost(self, partition: Partition, missing: Record | None) -> set[int]:
        """The brokers that may have lost a record. The partition counts as `lost` if they are
        min.insync.replicas or more."""
        if missing is None:
            return set()
        lost_at = partition.losses.of(missing)
        if len(lost_at) >= self._cluster.min_in_sync:
            partition.lost = True
        return lost_at
