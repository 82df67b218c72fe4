"""From facts to causes: a pure function, which names what blocks first.

Place in the flow: `gathering.py` reads the facts, `answer.py` puts the causes into words and JSON.
One look for each cause. `LOOKS` has them in the order in which a request meets them: rights, the
group, the topic, the leader, the batch, the replicas, the disk, offsets, and then what only slows
it down. A subject has the looks that concern it, in this order. So of two causes the one that
blocks first is named first; a cause that has ended is in no fact, and is not named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from kbroker.observe.why.facts import NO_BROKER, About, Facts, Holder, Partition, Throttle
from kbroker.outside_text import printable
from kbroker.types import TopicPartition

# A thread that is idle for less is overloaded: the bound of the alert rules.
IDLE_MIN: Final = 0.2
# From here on a time is named: the bound of the alert rules for requests.
SLOW_MS: Final = 200.0
# The bound from which on `kbroker health` takes a disk for failing.
FREE_PERCENT_MIN: Final = 5
# Transactions are open for a while in any case; from here on one is a cause.
HELD_MS_MIN: Final = 10_000
_NAMED_MAX: Final = 3


class Cause(NamedTuple):
    """`kind` is for programs. `since_ms` None: not known. `topics` and `transactional_ids`: those
    that the texts name, so that a reader with fewer rights can leave the cause out."""

    kind: str
    what: str
    next_step: str
    since_ms: int | None = None
    evidence: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()


Look = Callable[[Facts], Iterator[Cause]]


def causes_in(facts: Facts) -> tuple[Cause, ...]:
    """What blocks first comes first; empty: nothing is wrong."""
    return tuple(
        cause for look, subjects in LOOKS if facts.about in subjects for cause in look(facts)
    )


# --- rights ---------------------------------------------------------------------------------------


def _denied(facts: Facts) -> Iterator[Cause]:
    for each in facts.denials:
        right = f"{each.operation} {printable(each.resource)}"
        kind, _, name = each.resource.partition(":")
        yield Cause(
            "denied",
            f"{printable(each.principal)} from {printable(each.host)} "
            f"{'was refused just now' if each.lately else 'may not'}: {right}",
            f"kbroker acl explain {printable(each.principal)} {right} names the rule; "
            "kbroker acl add allows it",
            evidence=(f"rule: {printable(each.rule)}",),
            topics=(name,) if kind == "topic" else (),
        )


# --- the group ------------------------------------------------------------------------------------


def _no_coordinator(facts: Facts) -> Iterator[Cause]:
    group = facts.group
    if group is None or group.records is None:
        return
    if group.coordinator == NO_BROKER:
        yield Cause(
            "no-coordinator",
            f"the group has no coordinator: {group.records} has no leader",
            f"kbroker why partition {_slashed(group.records)}",
        )
    elif group.trouble:
        what = f"its coordinator, broker {group.coordinator}, answers {group.trouble}"
        yield Cause("coordinator-not-ready", what, "wait; if it stays so, see that broker's log")


def _no_group(facts: Facts) -> Iterator[Cause]:
    group = facts.group
    if group is None or group.state or group.trouble:
        return
    if any(each.name == group.records for each in facts.writes):
        return  # so nothing is known of it
    if group.records is None or group.coordinator == facts.node_id:
        yield Cause(
            "no-group",
            f"there is no group '{printable(group.name)}': it has no member and no offset",
            "compare the group.id of the consumers with kbroker group list",
        )


def _no_members(facts: Facts) -> Iterator[Cause]:
    group = facts.group
    if group is None or not group.state or group.members:
        return
    yield Cause(
        "no-members",
        "the group has no members, so no client reads for it",
        f"start a consumer with group.id={printable(group.name)}",
        group.since_ms,
        (printable(group.departed),) if group.departed else (),
    )


def _rebalance(facts: Facts) -> Iterator[Cause]:
    group = facts.group
    if group is None or not group.awaited:
        return
    named = [
        " ".join(map(printable, (each.member_id, "of client", each.client_id, "at", each.host)))
        for each in group.awaited
    ]
    yield Cause(
        "rebalance",
        f"a rebalance waits for {_some(named, 'member')}",
        f"look at that client, whose poll() may be late; kbroker group why {printable(group.name)}",
        group.since_ms,
        (f"the group is {group.state}, with {counted(group.members, 'member')}",),
    )


# --- topics and partitions ------------------------------------------------------------------------


def _no_topic(facts: Facts) -> Iterator[Cause]:
    if facts.missing:
        named = [printable(name) for name in facts.missing]
        hint = "; a client that writes to it creates it" if facts.topics_are_created else ""
        what = f"there is no topic {_some(named, 'topic')}"
        yield Cause(
            "no-topic",
            what,
            f"kbroker topic create {named[0]}{hint}",
            topics=facts.missing[:_NAMED_MAX],
        )


def _no_partition(facts: Facts) -> Iterator[Cause]:
    if facts.about is About.PARTITION and not facts.partitions and not facts.missing:
        what = "the topic has no partition of this number"
        yield Cause("no-partition", what, "kbroker topic describe lists its partitions")


def _no_leader(facts: Facts) -> Iterator[Cause]:
    headless = [each for each in facts.partitions if each.leader == NO_BROKER]
    if headless:
        yield _of_partitions(
            "no-leader", headless, facts, "no leader", _start(headless, "see the brokers' logs")
        )


def _too_large(facts: Facts) -> Iterator[Cause]:
    each = facts.too_large
    if each is not None:
        yield Cause(
            "too-large",
            f"a batch of {each.size} bytes is refused: {each.setting} allows {each.most}",
            f"raise {each.setting}, or lower batch.size and max.request.size of the producer",
            evidence=(f"{each.setting}={each.most} is set by {each.source}",),
        )


def _too_few_in_sync(facts: Facts) -> Iterator[Cause]:
    few = [
        each
        for each in facts.partitions
        if each.leader != NO_BROKER and len(each.in_sync) < each.min_in_sync
    ]
    if few:
        yield _of_partitions(
            "below-min-in-sync",
            few,
            facts,
            "fewer replicas in sync than min.insync.replicas, so acks=all is refused",
            _start(few, "wait, or see the logs of the brokers that are missing"),
        )


def _of_partitions(
    kind: str, some: Sequence[Partition], facts: Facts, lack: str, next_step: str
) -> Cause:
    names = _some([str(each.name) for each in some], "partition")
    whole = len(facts.partitions) + facts.left_out
    verb = "has" if len(some) == 1 else "have"
    known = [each.since_ms for each in some if each.since_ms is not None]
    return Cause(
        kind,
        f"{names} {verb} {lack} ({len(some)} of {whole})",
        next_step,
        min(known) if len(known) == len(some) else None,
        tuple(map(_replicas_of, some[:_NAMED_MAX])),
        _topics([each.name for each in some]),
    )


def _replicas_of(each: Partition) -> str:
    missing = [
        f"broker {node} {'is not registered' if node in each.away else 'is not in sync'}"
        for node in each.replicas
        if node not in each.in_sync or node in each.away
    ]
    return (
        f"{each.name}: replicas {_numbers(each.replicas)}, in sync {_numbers(each.in_sync)}, "
        f"needed {each.min_in_sync}; {', '.join(missing) or 'each broker is registered'}"
    )


def _start(some: Sequence[Partition], otherwise: str) -> str:
    away = sorted({node for each in some for node in each.away})
    return f"start broker {', '.join(map(str, away))}" if away else otherwise


# --- this broker and its disks --------------------------------------------------------------------


def _broken(facts: Facts) -> Iterator[Cause]:
    for part, trouble in facts.troubles:
        what = f"{printable(part)} of broker {facts.node_id}: {printable(trouble)}"
        yield Cause("broken", what, "see the broker's log")


def _disk_failed(facts: Facts) -> Iterator[Cause]:
    """Of a topic or a group it is a cause where a log that they need cannot be used."""
    unled = (NO_BROKER, facts.node_id)
    concerned = any(each.log is None and each.leader in unled for each in facts.partitions)
    for each in facts.directories if concerned or facts.about is About.SLOW else ():
        if each.trouble:
            what = f"log directory {printable(each.path)}: {printable(each.trouble)}"
            yield Cause("disk-failed", what, "mend the disk, then restart the broker")


def _log_unusable(facts: Facts) -> Iterator[Cause]:
    lost = [each for each in facts.partitions if each.leader == facts.node_id and each.log is None]
    if lost:
        names = _some([str(each.name) for each in lost], "log")
        what = f"broker {facts.node_id} leads, and cannot use {names}"
        step = "see the broker's log; kill -HUP tries them again"
        yield Cause("log-unusable", what, step, topics=_topics([each.name for each in lost]))


def _disk_hangs(facts: Facts) -> Iterator[Cause]:
    if facts.writes:
        longest = max(each.ms for each in facts.writes)
        places = sorted({printable(each.directory) for each in facts.writes})
        # The topic with the group's records is the same one in each cluster.
        own = None if facts.group is None else facts.group.records
        yield Cause(
            "disk-hangs",
            f"writes have not ended after up to {longest / 1000:.0f} s: "
            f"{_some([str(each.name) for each in facts.writes], 'log')} "
            f"in {_some(places, 'directory')}",
            "look at the disk: dmesg, iostat; restart the broker without it, or mend it",
            facts.now_ms - longest,
            topics=_topics([each.name for each in facts.writes[:_NAMED_MAX] if each.name != own]),
        )


def _disk_full(facts: Facts) -> Iterator[Cause]:
    for each in facts.directories:
        if each.trouble or each.free_bytes is None or not each.total_bytes:
            continue
        if 100 * each.free_bytes < FREE_PERCENT_MIN * each.total_bytes:
            left = f"{each.free_bytes} of {each.total_bytes} bytes are free"
            yield Cause(
                "disk-full",
                f"log directory {printable(each.path)} is nearly full: {left}",
                "delete topics or records, or move logs with kbroker logdir move",
            )


# --- offsets --------------------------------------------------------------------------------------


def _out_of_range(facts: Facts) -> Iterator[Cause]:
    lost = [
        (each.name, each.committed, each.log)
        for each in facts.partitions
        if each.log is not None
        and each.committed is not None
        and not each.log.start <= each.committed <= each.log.end
    ]
    if not lost or facts.group is None:
        return
    places = _some([str(name) for name, _, _ in lost], "partition")
    yield Cause(
        "offset-out-of-range",
        f"committed offsets are out of range in {places}",
        "the consumers go on by auto.offset.reset; to choose: "
        f"kbroker group reset {printable(facts.group.name)}",
        evidence=tuple(
            f"{name}: committed {committed}, the log has {log.start} to {log.end}"
            for name, committed, log in lost[:_NAMED_MAX]
        ),
        topics=_topics([name for name, _, _ in lost]),
    )


def _held(facts: Facts) -> Iterator[Cause]:
    held = [
        (holder.since_ms, each.name, each.log, holder)
        for each in facts.partitions
        if each.log is not None
        and each.log.last_stable < each.log.high_watermark
        and (holder := each.log.holder) is not None
        and holder.since_ms is not None
        and facts.now_ms - holder.since_ms >= HELD_MS_MIN
    ]
    held.sort(key=lambda each: each[:2])
    more = len(held) - _NAMED_MAX
    for since_ms, name, log, holder in held[:_NAMED_MAX]:
        waiting = f"{log.high_watermark - log.last_stable} records wait"
        yield Cause(
            "transaction-open",
            f"consumers of committed records wait at offset {log.last_stable} of {name}, held by "
            f"{_transaction(holder)}",
            f"kbroker explain {_slashed(name)} --isolation read_committed says when it ends",
            since_ms,
            (waiting, f"held as well: {counted(more, 'more partition')}")
            if more > 0
            else (waiting,),
            (name.topic,),
            () if holder.transactional_id is None else (holder.transactional_id,),
        )


def _transaction(holder: Holder) -> str:
    pair = f"producer id {holder.producer_id}, epoch {holder.producer_epoch}"
    if holder.transactional_id is None:
        return pair
    client = f", client {printable(holder.client)}" if holder.client else ""
    return (
        f"transactional id '{printable(holder.transactional_id)}' ({holder.state}; {pair}{client})"
    )


# --- what slows requests down ---------------------------------------------------------------------

_UNITS: Final = {"request": "% of a thread", "mutation": "mutations/s"}


def _throttled(facts: Facts) -> Iterator[Cause]:
    for each in facts.throttles:
        unit = _UNITS.get(each.kind, "bytes/s")
        mean = f", {each.delay_ms / each.delayed:.0f} ms each on average" if each.delayed else ""
        yield Cause(
            "throttled",
            f"{_entity(each)} is throttled by its {each.kind} quota: "
            f"{each.used:.0f} of {each.most:.0f} {unit}",
            "kbroker quota list; raise it with kbroker quota set, or have the client send less",
            evidence=(f"{each.delayed} answers were delayed{mean}",),
        )


def _entity(each: Throttle) -> str:
    """The clients whose use was counted together."""
    parts = [
        f"{kind} {printable(name) or '(all others)'}"
        for kind, name in (("user", each.user), ("client id", each.client_id))
        if name is not None
    ]
    return ", ".join(parts) or "every client"


def _network_busy(facts: Facts) -> Iterator[Cause]:
    idle = facts.load.network_idle
    if idle < IDLE_MIN:
        what = f"the network threads are busy: idle for {100 * idle:.0f} % of the last minute"
        yield Cause("network-busy", what, "raise num.network.threads, or spread the clients")


def _handlers_busy(facts: Facts) -> Iterator[Cause]:
    idle = facts.load.handlers_idle
    if idle < IDLE_MIN:
        yield Cause(
            "handlers-busy",
            f"the request handlers are busy: idle for {100 * idle:.0f} % of the last minute",
            "raise num.io.threads, spread the leaders, or set request quotas for the clients",
            evidence=tuple(
                f"{api.name}: {api.per_s:.0f} requests/s of {api.local_ms:.2f} ms"
                for api in facts.load.busiest
            ),
        )


def _disk_slow(facts: Facts) -> Iterator[Cause]:
    slow = [
        f"{share} of {name} take more than {ms:.0f} ms"
        for share, name, ms in (
            ("half", "the flushes", facts.load.flush_ms),
            ("1 %", "the appends", facts.load.append_ms),
        )
        if ms > SLOW_MS
    ]
    if slow:
        what = f"the disks of broker {facts.node_id} are slow"
        step = "look at the disk with iostat; move logs away with kbroker logdir move"
        yield Cause("disk-slow", what, step, evidence=tuple(slow))


def _followers_slow(facts: Facts) -> Iterator[Cause]:
    ms = facts.load.followers_ms
    if ms > SLOW_MS:
        what = f"producers with acks=all wait for followers: 99 % up to {ms:.0f} ms"
        step = "kbroker top lists the replicas that lag; ask their brokers: kbroker why slow"
        yield Cause("followers-slow", what, step)


_ALL: Final = frozenset(About)
_DATA: Final = _ALL - {About.SLOW}
_CONSUMER: Final = frozenset({About.CONSUMER})
_WRITES: Final = frozenset({About.PRODUCE, About.PARTITION})

# The order is that in which a request meets them.
LOOKS: Final[tuple[tuple[Look, frozenset[About]], ...]] = (
    (_denied, _DATA),
    (_no_coordinator, _CONSUMER),
    (_no_group, _CONSUMER),
    (_no_members, _CONSUMER),
    (_rebalance, _CONSUMER),
    (_no_topic, _DATA),
    (_no_partition, _DATA),
    (_no_leader, _DATA),
    (_too_large, _WRITES),
    (_too_few_in_sync, _WRITES),
    (_broken, _ALL),
    (_disk_failed, _ALL),
    (_log_unusable, _DATA),
    (_disk_hangs, _ALL),
    (_disk_full, _WRITES | {About.SLOW}),
    (_out_of_range, _CONSUMER),
    (_held, _CONSUMER | {About.PARTITION}),
    (_throttled, _ALL),
    (_network_busy, _ALL),
    (_handlers_busy, _ALL),
    (_disk_slow, _ALL),
    (_followers_slow, _WRITES | {About.SLOW}),
)


# --- words ----------------------------------------------------------------------------------------


def _some(names: Sequence[str], noun: str) -> str:
    """`orders-0, orders-1 and 3 more partitions`."""
    named = ", ".join(names[:_NAMED_MAX])
    more = len(names) - _NAMED_MAX
    return named if more <= 0 else f"{named} and {counted(more, f'more {noun}')}"


def _topics(names: Sequence[TopicPartition]) -> tuple[str, ...]:
    """Of those that `_some` names."""
    return tuple(sorted({each.topic for each in names[:_NAMED_MAX]}))


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _numbers(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes)) or "none"


def _slashed(name: TopicPartition) -> str:
    return f"{name.topic}/{name.partition}"
