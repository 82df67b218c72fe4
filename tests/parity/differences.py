"""Where kbroker answers otherwise than Apache Kafka 4.3.0, and why: the whole list.

`cases` is a pattern of "family: label", `path` one of the place in the record: the number of the
step, 1 for its data, then fields and entries of lists, by name where they have one
("0/1/topics/t-0a1b2c3d/error_code"). `*` is anything, "/" included: an entry says why.

Excused differences are in differences.json, case by case and place by place, with our answer there.
Another answer fails, in a place that an entry's pattern has, too; so does an entry or an answer
that explains nothing any more. `python -m tests.parity.compare --pin` writes them down: read the
changes before you commit them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from kbroker.config import BROKER_KEYS
from kbroker.config.definition import TOPIC_KEYS
from kbroker.config.key import SAME
from kbroker.config.keys_resources import GROUP_KEYS
from tests.parity.answers import identity
from tests.parity.cases.describe_configs import OF_THIS_START

PINS_FILE: Final = Path(__file__).with_suffix(".json")
# By case and place: our answer there.
Pins = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Difference:
    """Why answers differ in some places."""

    cases: str
    path: str
    why: str

    def is_of(self, found: Found) -> bool:
        return fnmatchcase(found.case, self.cases) and fnmatchcase(found.path, self.path)


@dataclass(frozen=True)
class Found:
    """One place where the two records differ. A missing side is the text "(nothing)"."""

    case: str
    path: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        sides = f"    kafka   {_line(self.theirs)}\n    kbroker {_line(self.ours)}"
        return f"{self.case}\n  {self.path}\n{sides}"


NOTHING: Final = "(nothing)"
_LINE_CHARS_MAX: Final = 600


def _line(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LINE_CHARS_MAX else f"{text[:_LINE_CHARS_MAX]}... ({len(text)})"


def between(case: str, ours: Any, theirs: Any, path: str = "") -> Iterator[Found]:
    """Every smallest place in which two records differ."""
    if ours == theirs:
        return
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            ours_value, theirs_value = ours.get(key, NOTHING), theirs.get(key, NOTHING)
            yield from between(case, ours_value, theirs_value, f"{path}/{key}")
    elif (places := _by_identity(ours, theirs)) is not None:
        yield from between(case, *places, path)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for place, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from between(case, mine, other, f"{path}/{place}")
    else:
        yield Found(case, path.removeprefix("/"), ours, theirs)


def _by_identity(ours: Any, theirs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Lists whose entries have names as mappings; None if they do not, or the order differs."""
    if not isinstance(ours, list) or not isinstance(theirs, list):
        return None
    named = []
    for side in (ours, theirs):
        names = [identity(item) for item in side]
        if None in names or len(set(names)) < len(names):
            return None
        named.append(dict(zip(map(str, names), side, strict=True)))
    mine, other = named
    common = [name for name in mine if name in other]
    return (mine, other) if common == [name for name in other if name in mine] else None


ELIGIBLE_LEADERS: Final = (
    "Apache Kafka's eligible leader replicas make a dynamic default of the cluster of it"
)

API_VERSIONS: Final = [
    Difference(
        "api_versions: *",
        "*/api_keys/*",
        "lists the APIs that this broker serves; each has Apache Kafka's range",
    ),
]
ALTER_CLIENT_QUOTAS: Final = [
    *(
        Difference(
            f"alter_client_quotas: *, {value} v[01]",
            "*",
            "a quota that is no finite number bounds nothing; here it is refused",
        )
        for value in ("infinity", "no number", "no number of bytes")
    ),
    Difference(
        "alter_client_quotas: names with signs v1",
        "*",
        "no node of ZooKeeper can be called '..'",
    ),
]
METADATA: Final = [
    Difference(
        "metadata: a count beyond 31 bits *",
        "0",
        "4,294,967,294 topics wrap to null, which is all, in Apache Kafka; here they are malformed",
    ),
]
CREATE_TOPICS: Final = [
    Difference("create_topics: *", "*/configs/min.insync.replicas/config_source", ELIGIBLE_LEADERS),
    *(
        Difference(
            f"create_topics: a value, {asked} v[47]",
            "0/1/topics/*",
            "Java's own ways to write a number, a float that is none, an empty part: mistakes here",
        )
        for asked in (
            "min.cleanable.dirty.ratio='NaN'",
            "min.cleanable.dirty.ratio='0x1p-1'",
            "min.cleanable.dirty.ratio='0.5f'",
            "retention.ms='\u0667\u0667'",
            "leader.replication.throttled.replicas='0:1,'",
        )
    ),
]
DELEGATION_TOKENS: Final = [
    Difference(
        "delegation_tokens: create for an owner, None ann v3",
        "0/1",
        "a name without a type: Apache Kafka has an unexpected error, ours takes it as no owner",
    ),
    *(
        Difference(
            f"tokens_of_users: create for an owner, {owner} by ann v3",
            "0/?",
            "an owner of another type than User: its token could not log in as it, so ours refuses",
        )
        for owner in ("Group cat", " cat", "user bob")
    ),
]
# Keys with another default that no case finds to be different.
ANSWERED_ALIKE: Final = frozenset({"group.share.persister.class.name"})
DESCRIBE_CONFIGS: Final = [
    *(
        Difference(
            "describe_configs: *",
            f"*/configs/min.insync.replicas/{field}",
            ELIGIBLE_LEADERS,
        )
        for field in ("config_source", "synonyms")
    ),
    *(
        Difference(
            "describe_configs: every key of the broker, *",
            f"*/configs/{key.name}" if key.own else f"*/configs/{key.name}/*",
            "a key of ours alone" if key.own else "another default: see docs/defaults.md",
        )
        for key in BROKER_KEYS.values()
        if key.kafka is not SAME and key.name not in OF_THIS_START | ANSWERED_ALIKE
    ),
    *(
        Difference(cases, f"*/configs/{key.name}", "a key of ours alone")
        for key in GROUP_KEYS.values()
        for cases in ("describe_configs: *", "settings_at_run_time: *a group*")
        if key.own
    ),
    *(
        Difference("*", f"*/configs/{key.name}", "a key of ours alone")
        for key in TOPIC_KEYS.values()
        if key.own
    ),
    Difference(
        "describe_configs: *",
        "*/error_message",
        "Apache Kafka says nothing of a topic that does not exist; ours says that",
    ),
]
ALTER_CONFIGS: Final = [
    Difference(
        "*alter_configs: one value, internal.segment.bytes = *",
        "*",
        "a key for Apache Kafka's own tests, which is not listed as long as it is not set",
    ),
    Difference(
        "alter_configs: named twice v*",
        "0",
        "Apache Kafka never answers; ours refuses the resource each time, as the incremental API",
    ),
]
AT_RUN_TIME: Final = [
    *(
        Difference(
            "settings_at_run_time: *",
            f"*/configs/{key}/*",
            "another default: see docs/defaults.md",
        )
        for key in (
            "node.id",
            "num.network.threads",
            "group.initial.rebalance.delay.ms",
            "metric.reporters",
        )
    ),
    Difference(
        "settings_at_run_time: *",
        "*/configs/leader.replication.throttled.rate/synonyms",
        "Apache Kafka leaves the default out once there is another value",
    ),
]
LIST_OFFSETS: Final = [
    Difference(
        "list_offsets: nothing v*",
        "*/topics/*",
        "ours answers as it was asked; Apache Kafka leaves topics without partitions out",
    ),
    Difference(
        "list_offsets: an isolation level, * v*",
        "*/error_code",
        "Apache Kafka has an unexpected error where there is no such level",
    ),
]

RIGHTS: Final = [
    Difference(
        "rights: FindCoordinator of a share, *",
        "*/error_message",
        "the topic of the state is being created: Apache Kafka gives no words, ours does",
    ),
    Difference(
        "rights: CreateTopics, *", "*/configs/min.insync.replicas/config_source", ELIGIBLE_LEADERS
    ),
    Difference(
        "rights: DescribeConfigs, *",
        "*/error_message",
        "Apache Kafka says nothing of a topic that does not exist; ours says that",
    ),
    *(
        Difference(
            f"authorized_acls: create, {element} v*",
            "*",
            "an element for filters alone: Apache Kafka has an unexpected error for all rules of "
            "the request, ours refuses the rule and creates the others",
        )
        for element in (
            *("anything", "matching", "any resource", "any pattern", "any operation"),
            "any permission",
        )
    ),
]

_NO_RECORDS: Final = (
    "where records do not unpack Apache Kafka has an error it did not expect; ours says what it is"
)
_STRICT: Final = "ours takes nothing that a producer would not make and a consumer might not read"
PRODUCE: Final = [
    *(
        Difference(f"produce: a batch of, {name} v*", "*/error_code", _NO_RECORDS)
        for name in (
            *("codec 5", "codec 7", "gzip that is none", "snappy that is none", "lz4 that is none"),
            *("zstd that is none", "two gzip records cut", "an offset delta of 5 in gzip"),
            "zstd with bytes behind the stream",
        )
    ),
    Difference(
        "produce: a topic with, stored uncompressed, not what it says v*",
        "*/error_code",
        _NO_RECORDS,
    ),
    *(
        Difference(f"produce: a batch of, {name} v*", "*", _STRICT)
        for name in (
            *("a producer without epoch", "a producer id of -2", "an epoch of -2"),
            *("an offset delta of 5", "an offset delta of -1"),
            *("a key of -2 bytes", "a value of -2 bytes", "gzip with bytes behind the stream"),
        )
    ),
    Difference("produce: null records v*", "*", "Apache Kafka never answers them"),
    Difference(
        "produce_timestamps: * with, its own time: the bit and a record of 2100*",
        "*",
        "the time that a consumer sees is held to the topic's window, too",
    ),
    *(
        Difference(
            f"produce_timestamps: *: the bit and a {name}*",
            "2/1/responses/*/records",
            "a header's largest timestamp is one that its records have, whatever a client wrote",
        )
        for name in ("record of 2100", "record of -1", "header of 2100")
    ),
]

FETCH: Final = [
    *(
        Difference(
            f"fetch: bytes {of}, -1 v*",
            "*/responses/*",
            "a bound below zero is 0; Apache Kafka fails with an unexpected error",
        )
        for of in ("of a partition", "in all")
    ),
]
PRODUCE_AND_FETCH: Final = [
    Difference(
        "produce_and_fetch: a long poll of a topic that is deleted v*",
        "*/error_code*",
        "an id that is gone is unknown; Apache Kafka has kept its name for this fetch",
    ),
    Difference(
        "produce_and_fetch: a long poll of a topic that is deleted v*",
        "*/aborted_transactions",
        "as for any topic that is not there; Apache Kafka had looked it up before",
    ),
]

_NO_NAME: Final = "a group or a member without a name, which ShareGroupHeartbeat refuses, too"
SHARE_FETCH: Final = [
    *(
        Difference(f"share_fetch: names, {name} v*", "*", _NO_NAME)
        for name in ("no group", "a blank group", "a blank member")
    ),
    Difference(
        "share_fetch: an unknown topic v*",
        "*",
        "Apache Kafka has an unexpected error for the whole request; ours names the partition",
    ),
    Difference(
        "share_fetch: how much is acquired, another mode",
        "*/error_code",
        "Apache Kafka has an unexpected error where there is no such mode",
    ),
    Difference(
        "share_fetch: how much is acquired, no batch size",
        "*/acquired_records",
        "Apache Kafka's first range has no offset: it ends before it begins",
    ),
    Difference(
        "share_fetch: how much is acquired, bytes of 2 batches",
        "*/records",
        "Apache Kafka sends the beginning of one more batch, of which nothing is acquired",
    ),
    Difference(
        "share_fetch: how much is acquired, fewer bytes than none",
        "*",
        "a bound below zero is 0; Apache Kafka fails with an unexpected error",
    ),
    Difference(
        "share_fetch: how much is acquired, fewer than none",
        "1/1/responses/*",
        "a bound below zero is 0, for which Apache Kafka, too, looks at no partition",
    ),
]

_NEVER_ANSWERED: Final = "Apache Kafka forgets this request and never answers it; ours says why"
GROUPS: Final = [
    Difference(
        "consumer_groups: a static member that joins again*",
        "1/1/*",
        "its first answer was lost: no other process has its member id",
    ),
    Difference(
        "join_group: odd protocols, * v*",
        "[01]",
        "Apache Kafka fails on them in its timer and never answers; here they are a protocol",
    ),
    Difference(
        "join_group: from another connection while waiting v*",
        "1",
        _NEVER_ANSWERED,
    ),
    Difference("sync_group: a follower asks twice v*", "3", _NEVER_ANSWERED),
    Difference("leave_group: one that waits for its assignment v*", "2", _NEVER_ANSWERED),
]

_NO_PRODUCER: Final = (
    "a transactional batch without a producer: Apache Kafka takes it as a plain one"
)
_KNOWN_BATCH: Final = (
    "a batch that the log has is acknowledged, whatever transaction it was of; Apache Kafka asks "
    "for a transaction first, and then waits for its sequence"
)
TRANSACTIONS: Final = [
    Difference(
        "add_partitions_to_txn: brokers: none v*",
        "0",
        "Apache Kafka never answers a request without transactions",
    ),
    Difference(
        "add_partitions_to_txn: brokers: an id twice v*",
        "0/1/results_by_transaction",
        "Apache Kafka answers the first entry twice where it has done the second, which ours says",
    ),
    Difference(
        "write_txn_markers: a partition twice v*",
        "0",
        "Apache Kafka counts a partition once and never answers; ours writes a marker for each",
    ),
    Difference("transactional_produce: not its pair, no id v*", "*", _NO_PRODUCER),
    Difference("transactional_produce: without a producer id v*", "*", _NO_PRODUCER),
    Difference("transactional_produce: gaps and duplicates v*", "*", _KNOWN_BATCH),
    Difference(
        "end_txn: not its pair, an older epoch, * v5",
        "[23]/1/*",
        "Apache Kafka takes the epoch before an outcome of EndTxn 4 for a lost response, and gives "
        "a replaced producer the pair of the one that has replaced it",
    ),
]

SHARE_OFFSETS: Final = [
    Difference(
        "share_group_offsets: a partition below 0, and none v*",
        "*",
        "Apache Kafka fails with UNKNOWN_SERVER_ERROR, also for the partitions that are there",
    ),
    Difference(
        "share_group_offsets: an alteration of a partition below 0",
        "*",
        "Apache Kafka fails with UNKNOWN_SERVER_ERROR; it is no partition, as one beyond the last",
    ),
    Difference(
        "share_group_offsets: an alteration of partitions that there are none of",
        "1/*",
        "Apache Kafka makes a group where nothing is altered",
    ),
    Difference(
        "share_group_offsets: a start, -2",
        "*",
        "Apache Kafka keeps -2, at which no member can read, and computes a lag from it",
    ),
    Difference(
        "share_group_offsets: a group that has no topics with a state",
        "0/1/responses/*",
        "every topic that is named has an answer, whatever topics the group had before",
    ),
    Difference(
        "share_rights: AlterShareGroupOffsets, *",
        "0/1/responses/*/topic_id",
        "a client without rights to a topic does not learn its id, nor whether it is there",
    ),
]

DIFFERENCES: Final = [
    *ALTER_CLIENT_QUOTAS,
    *API_VERSIONS,
    *METADATA,
    *CREATE_TOPICS,
    *DELEGATION_TOKENS,
    *DESCRIBE_CONFIGS,
    *ALTER_CONFIGS,
    *AT_RUN_TIME,
    *LIST_OFFSETS,
    *RIGHTS,
    *PRODUCE,
    *FETCH,
    *PRODUCE_AND_FETCH,
    *SHARE_FETCH,
    *GROUPS,
    *SHARE_OFFSETS,
    *TRANSACTIONS,
]


def reason(found: Found) -> Difference | None:
    return next((entry for entry in DIFFERENCES if entry.is_of(found)), None)


def split(
    found: Iterable[Found], pins: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Found], list[tuple[Found, Difference]]]:
    """(unexplained, explained with the entry that does it): only the answer that is pinned is."""
    unexplained, explained = [], []
    for each in found:
        entry, places = reason(each), pins.get(each.case, {})
        if entry is None or each.path not in places or places[each.path] != each.ours:
            unexplained.append(each)
        else:
            explained.append((each, entry))
    return unexplained, explained


def load_pins() -> Pins:
    pins: Pins = json.loads(PINS_FILE.read_text(encoding="utf-8"))
    return pins


def save_pins(pins: Mapping[str, Mapping[str, Any]]) -> None:
    """A line a place."""
    lines = [
        f"{json.dumps(case, ensure_ascii=False)}: {{\n"
        + ",\n".join(
            f" {json.dumps(path, ensure_ascii=False)}: {json.dumps(ours, ensure_ascii=False)}"
            for path, ours in places.items()
        )
        + "\n}"
        for case, places in sorted(pins.items())
        if places
    ]
    PINS_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
