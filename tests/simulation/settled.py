"""The conditions that a simulated cluster meets again once nothing fails any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.coordinator.runtime._shard_table import ACTIVE, NOT_OWNER
from kbroker.coordinator.txn.states import State
from kbroker.metadata.image import NO_LEADER, OFFSETS_TOPIC

if TYPE_CHECKING:
    from kbroker.types import TopicPartition
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster
    from tests.simulation.views import View


_OVER = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


def unsettled(cluster: Cluster) -> str:
    """The first condition that the cluster does not meet yet; empty: it meets all."""
    if len(cluster.all_running()) < len(cluster.brokers):
        return "not every broker runs"
    for name in cluster.logs:
        partition = cluster.safety.partition(name)
        state = partition.state
        if state is None or state.leader == NO_LEADER:
            return f"{name} has no leader"
        if {*state.isr} != {*cluster.brokers} or state.eligible:
            return f"{name} has in sync {state.isr}, eligible {state.eligible}"
        if partition.adding or partition.removing:
            return f"the move of {name} does not end"
        reason = _apart(partition.views, state.leader)
        if reason:
            return f"{name}: {reason}"
        decided = state.leader, state.leader_epoch, state.isr
        for running in cluster.all_running():
            known = running.controller.image.partition(*name)
            if known is None or (known.leader, known.leader_epoch, known.isr) != decided:
                return f"broker {running.node_id} has an old state of {name}"
    for running in cluster.all_running():
        if running.produces.waiting:
            return f"produces wait at broker {running.node_id}"
        if running.offsets.partition_count != len(cluster.homes):
            return f"broker {running.node_id} does not know {OFFSETS_TOPIC}"
        for home in cluster.homes:
            wanted = ACTIVE if running.leads(home) else NOT_OWNER
            found = running.offsets.shard_state(home.partition)
            if found != wanted:
                return f"{home} is {found} at broker {running.node_id}, not {wanted}"
        for name in cluster.states:
            if reason := _state_at(running, name):
                return reason
        for name in cluster.share_states:
            made = running.share.made
            wanted = ACTIVE if running.leads(name) else NOT_OWNER
            if made is None or made.table.shard_state(name.partition) != wanted:
                return f"{name} is not as it should be at broker {running.node_id}"
        if cluster.crowd.stays_at(running):
            return "the group of several has a member, or is there after its deletion"
    if reason := cluster.topics.unsettled():
        return reason
    if any(producer.is_busy for producer in cluster.transactional):
        return "a transactional producer waits"
    if reason := cluster.ledger.still_open():
        return reason
    if cluster.share_states and (reason := cluster.share_ledger.lags()):
        return reason
    if any(producer.sending for producer in cluster.producers):
        return "a producer waits"
    if any(committer.committing for committer in cluster.committers):
        return "a commit waits"
    return ""


def _state_at(running: Running, name: TopicPartition) -> str:
    made = running.transactions.made
    assert made is not None
    wanted = ACTIVE if running.leads(name) else NOT_OWNER
    found = made.table.shard_state(name.partition)
    if found != wanted:
        return f"{name} is {found} at broker {running.node_id}, not {wanted}"
    for transactional_id, image in made.coordinator.listings():
        if image.state not in _OVER:
            return f"{transactional_id} is {image.state.label} at broker {running.node_id}"
    return ""


def _apart(views: dict[int, View], leader: int) -> str:
    end = views[leader].end_offset
    for view in views.values():
        if view.leads != (view.node_id == leader):
            return f"broker {view.node_id} does not know the leader"
        if (view.end_offset, view.high_watermark) != (end, end):
            return (
                f"broker {view.node_id} ends at {view.end_offset}, its high watermark is"
                f" {view.high_watermark}, the leader ends at {end}"
            )
    return ""
