"""Keys of resources that are neither broker nor topic: groups, and subscriptions to client metrics.

Rows of the table only (see `key.py`). Groups and subscriptions may have values of their own. Those
of groups hold for them (`group_settings.py`); those of subscriptions are stored and described, and
nothing follows them. Most keys of a group mean the broker key of the same name after `group.`,
whose row they share.
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.config.definition import BROKER_KEYS
from kbroker.config.key import BOOLEAN, INT, LIST, STRING, parse_value
from kbroker.config.key import ConfigKey as Key
from kbroker.limits import TOPIC_NAME_CHARS_MAX

_BROKER_PREFIX: Final = "group."
_OF_THE_BROKER: Final = (
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.assignment.interval.ms",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.session.timeout.ms",
    "streams.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas",
    "streams.session.timeout.ms",
)
_BY_DURATION: Final = "by_duration:"


def _check_reset(text: str) -> str | None:
    """What is wrong, or None: an age is written as in ISO 8601, in days and below."""
    if text in ("earliest", "latest"):
        return None
    if text.startswith(_BY_DURATION):
        import re  # few groups are given one

        age = text.removeprefix(_BY_DURATION)
        form = r"P(?=.*\d)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d{1,9})?S)?)?"
        if re.fullmatch(form, age, re.ASCII | re.IGNORECASE):
            return None
    return "earliest, latest or by_duration:P1DT2H3M4.5S"


ALWAYS: Final = "always"
UNLESS_SHORT: Final = "unless-short"

# KIP-1191, of Apache Kafka 4.4: 4.3 does not have these.
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_RECORDS: Final = "errors.deadletterqueue.copy.record.enable"
_TOPIC_WORDS: Final = "the name of a topic that is not internal, or nothing"


def _check_topic(text: str) -> str | None:
    """What is wrong, or None. Which prefix it must have is the broker's to say, when it is used."""
    if not text:
        return None
    is_legal = len(text) <= TOPIC_NAME_CHARS_MAX and text not in (".", "..")
    is_legal = is_legal and text.isascii() and all(each.isalnum() or each in "._-" for each in text)
    return None if is_legal and not text.startswith("__") else _TOPIC_WORDS


# Keys of ours begin with "kb.". The time of a short session: it may last for 5 s after its client
# has left (SHARE_SESSION_LEFT_MS_MAX), and a client that reads slowly has records as long before it
# works on them.
_OWN: Final = (
    Key(DEAD_LETTER_RECORDS, BOOLEAN, False,
        "Whether a copy in the dead-letter topic has the record's key, value and headers, or only"
        " headers that say which record it is of.", kafka="-"),
    Key(DEAD_LETTER_TOPIC, STRING, "",
        "The topic that gets a copy of each record that a share group has given up, since it was"
        " rejected, or delivered as often as is allowed; empty: none.", check=_check_topic,
        check_words=_TOPIC_WORDS, kafka="-"),
    Key("kb.share.record.times.enable", BOOLEAN, False,
        "Whether a share group heeds the headers kb-deliver-at and kb-expires-at of records: times"
        " before which, and from which on, no member gets the record.", kafka="-"),
    Key("kb.share.release.delay.max.ms", INT, 300_000,
        "The longest time that a record waits by kb.share.release.delay.ms.", low=1,
        high=3_600_000, kafka="-"),
    Key("kb.share.release.delay.ms", INT, 0,
        "How long a record waits before it is delivered again that a member of a share group has"
        " released, or not acknowledged in time: so long after its first delivery, and twice as"
        " long after each further one. 0: it does not wait.", low=0, high=3_600_000, kafka="-"),
    Key("kb.share.session.end.count", STRING, ALWAYS,
        "Whether records count as delivered that a member of a share group had when its session"
        " ended: always, as in Apache Kafka, or unless it had them for a short time, at most twice"
        " for each record.", choices=(ALWAYS, UNLESS_SHORT), kafka="-"),
    Key("kb.share.session.end.short.ms", INT, 10_000,
        "The short time for kb.share.session.end.count.", low=1, high=60_000, kafka="-"),
    Key("share.auto.offset.reset", STRING, "latest",
        "Where a share group begins to read that has read nothing yet.", check=_check_reset,
        check_words="earliest, latest or by_duration:P1DT2H3M4.5S"),
    Key("share.isolation.level", STRING, "read_uncommitted",
        "Whether a share group reads records of open transactions.",
        choices=("read_committed", "read_uncommitted")),
    Key("share.renew.acknowledge.enable", BOOLEAN, True,
        "Whether members of a share group may renew the lock of a record."),
)  # fmt: skip

GROUP_KEYS: Final[dict[str, Key]] = {
    **{name: BROKER_KEYS[_BROKER_PREFIX + name] for name in _OF_THE_BROKER},
    **{key.name: key for key in _OWN},
}

CLIENT_METRICS_KEYS: Final[dict[str, Key]] = {
    key.name: key
    for key in (
        Key("interval.ms", INT, 300_000,
            "How often a client is to push its metrics: every 100 ms to once an hour."),
        Key("match", LIST, (), "Which clients are meant, as name=pattern; empty: all."),
        Key("metrics", LIST, (), "Prefixes of the names of the metrics that are wanted."),
    )
}  # fmt: skip


def parse_resource_value(key: Key, text: str) -> Any:
    """`parse_value` for a group's or a subscription's own setting: in a list a part counts once."""
    parts = [part.strip() for part in text.split(",")]
    if key.type is LIST and "" not in parts:
        text = ",".join(dict.fromkeys(parts))
    return parse_value(key, text)


def broker_key_of_group(name: str) -> str | None:
    """The broker key that a group's key defaults to; None if there is none."""
    return _BROKER_PREFIX + name if name in _OF_THE_BROKER else None
