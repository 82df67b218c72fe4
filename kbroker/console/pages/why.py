"""Why a group, topic or partition is in trouble, or this broker slow: the answer of `/why`, drawn.

The answer names principals, clients and rules, so it is for visitors who may describe the cluster;
and of a topic or group, for those who may describe that one. A cause that names other topics, or
transactional ids, is left out for those who may not describe these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final

from kbroker.console.asked import Asked
from kbroker.console.page import (
    Cell,
    Column,
    Field,
    Form,
    Notice,
    Page,
    Section,
    Table,
    Tone,
    Unit,
    to,
)
from kbroker.console.sections import operations_of
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.observe.why.answer import NOTHING
from kbroker.observe.why.causes import counted
from kbroker.observe.why.facts import About, Question
from kbroker.observe.why.question import BATCH_BYTES, CLIENT_ID, HOST, PRINCIPAL, parse
from kbroker.peer.groups import Groups
from kbroker.peer.transactions import Transactions
from kbroker.security.rights import Operation

_SUBJECTS: Final = tuple(each.value for each in About)
_BESIDE: Final = (PRINCIPAL, HOST, CLIENT_ID, BATCH_BYTES)
_THROTTLED: Final = "throttled"
_AUTHORIZER: Final = "authorizer.class.name"
_NEEDED: Final = "they need Describe on the topics and transactional ids"
_DENIED: Final = 403
_WRONG: Final = 400


def make(asked: Asked) -> Page:
    query = _query(asked.query)
    if not query:
        return _page([*_forms(query)])
    try:
        question = parse(query)
    except ValueError as error:
        return _page([Notice(Tone.WARN, str(error)), *_forms(query)], _WRONG)
    operations = operations_of(asked)
    if Operation.DESCRIBE not in operations:
        notice = Notice(Tone.WARN, "you may not see why", "it needs Describe on the cluster")
        return _page([notice, *_forms(query)], _DENIED)
    if not _may_describe(asked, question):
        what = f"{question.about.value} {question.name}: you may not see this"
        notice = Notice(Tone.WARN, what, "it needs Describe on it")
        return _page([notice, *_forms(query)], _DENIED)
    answer = asked.here.why(question)
    every = answer["causes"]
    asked.pause()
    causes = _that_may_be_seen(asked, every)
    hidden = len(every) - len(causes)
    may_see_quotas = Operation.DESCRIBE_CONFIGS in operations
    sections = _answer(answer | {"causes": causes}, hidden, may_see_quotas=may_see_quotas)
    return _page([*sections, *_forms(query)])


def _page(sections: Sequence[Section], status: int = 200) -> Page:
    return Page("Why", sections, status=status)


def _query(query: Mapping[str, str]) -> dict[str, str]:
    """As `parse` takes it: a form sends its empty fields, too."""
    found = {
        name: query[name]
        for name in (*_SUBJECTS, *_BESIDE)
        if query.get(name) and name != About.SLOW.value
    }
    if About.SLOW.value in query:
        found[About.SLOW.value] = ""
    return found


def _may_describe(asked: Asked, question: Question) -> bool:
    if question.about is About.SLOW:
        return True
    if question.about is About.CONSUMER:
        return Groups(asked.client).may_describe(question.name)
    topic = asked.client.metadata([question.name]).topics.get(question.name)
    return topic is None or topic.error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _that_may_be_seen(
    asked: Asked, causes: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """Those that name only what the visitor may describe; all where nothing is protected."""
    if not asked.here.config[_AUTHORIZER]:
        return causes
    topics = _described_topics(asked, {name for each in causes for name in each["topics"]})
    asked.pause()
    ids = _described_ids(asked, {name for each in causes for name in each["transactional_ids"]})
    return [
        each
        for each in causes
        if topics >= set(each["topics"]) and ids >= set(each["transactional_ids"])
    ]


def _described_topics(asked: Asked, names: Set[str]) -> Set[str]:
    """A visitor without the right is refused a topic that is not there, too."""
    if not names:
        return names
    found = asked.client.metadata(sorted(names)).topics
    return {
        name
        for name in names & found.keys()
        if found[name].error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }


def _described_ids(asked: Asked, names: Set[str]) -> Set[str]:
    """None of them while a coordinator gives no answer."""
    if not names:
        return names
    try:
        found = Transactions(asked.client).describe(sorted(names))
    except (KafkaError, UserError):
        return set()
    refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return {name for name, each in found.items() if each.transaction.error is not refusal}


# --- the answer -----------------------------------------------------------------------------------


def _answer(answer: Mapping[str, Any], hidden: int, *, may_see_quotas: bool) -> Iterator[Section]:
    """`hidden`: causes that are left out."""
    causes = [each for each in answer["causes"] if may_see_quotas or each["kind"] != _THROTTLED]
    if causes:
        first = causes[0]
        yield Notice(Tone.BAD, first["what"], first["next_step"])
        yield _causes(causes)
    elif hidden:
        yield Notice(Tone.WARN, "there are causes that you may not see", _NEEDED)
    else:
        yield Notice(Tone.GOOD, NOTHING)
    not_seen = list(answer["not_seen"])
    if hidden:
        not_seen.append(f"{counted(hidden, 'cause')} with names that you may not see: {_NEEDED}")
    if not may_see_quotas:
        not_seen.append("quotas: they need DescribeConfigs on the cluster")
    yield _lines("seen", "Seen", answer["seen"])
    yield _lines("not_seen", f"Not seen from broker {answer['broker']}", not_seen)


def _causes(causes: Sequence[Mapping[str, Any]]) -> Table:
    """The one that blocks first, first."""
    columns = (
        Column("kind", "Kind"),
        Column("what", "Cause"),
        Column("since_ms", "Since", Unit.MOMENT_MS),
        Column("next_step", "What to do"),
        Column("evidence", "Evidence", Unit.PAYLOAD),
    )
    rows = [
        (
            Cell(each["kind"]),
            Cell(each["what"], tone=Tone.BAD),
            Cell(each["since_ms"]),
            Cell(each["next_step"]),
            Cell("\n".join(each["evidence"]) or None),
        )
        for each in causes
    ]
    return Table("causes", "Causes", columns, rows)


def _lines(name: str, title: str, lines: Sequence[str]) -> Table:
    rows = [(Cell(line),) for line in lines]
    return Table(name, title, (Column("line", title),), rows, "nothing")


# --- the questions --------------------------------------------------------------------------------


def _forms(query: Mapping[str, str]) -> Iterator[Form]:
    path = to("why")

    def fields(*some: tuple[str, str, str]) -> list[Field]:
        return [Field(name, label, query.get(name, ""), help=text) for name, label, text in some]

    client = (
        (PRINCIPAL, "Principal", "its rights, as User:anna"),
        (HOST, "Address", "of the principal"),
        (CLIENT_ID, "Client id", "quotas of this client only"),
    )
    group = (About.CONSUMER.value, "Group", "why it reads nothing, or slowly")
    yield Form("consumer", "A group", path, fields(group, *client), "Why?")
    topic = (About.PRODUCE.value, "Topic", "why it takes no records, or slowly")
    size = (BATCH_BYTES, "Bytes of a batch", "")
    yield Form("produce", "A topic", path, fields(topic, *client, size), "Why?")
    partition = (About.PARTITION.value, "Partition", "as orders/0: why it cannot be used")
    yield Form("partition", "A partition", path, fields(partition, *client), "Why?")
    slow = Field(About.SLOW.value, "", "1", kind="hidden")
    yield Form("slow", "This broker", path, [slow], "Why is it slow?")
