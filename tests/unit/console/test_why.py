"""The page of causes: who may ask, and how an answer of `/why` is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kbroker.console.page import Tone
from kbroker.console.pages import why
from kbroker.errors import ErrorCode
from kbroker.observe.why.facts import About
from kbroker.peer.transaction_messages import NO_TRANSACTION, DescribedTransaction
from kbroker.peer.transactions import Described
from kbroker.security.rights import Operation
from tests.unit.console.fake_cluster import (
    NOW_MS,
    FakeClient,
    FakeHere,
    asked_of,
    cluster_of,
    forms,
    notices,
    part,
    rows,
)

CAUSE = {
    "kind": "no-leader", "what": "orders-0 has no leader", "next_step": "start broker 2",
    "since_ms": NOW_MS - 1_000, "evidence": ["broker 2 is away", "it was in sync"],
    "topics": ["orders"], "transactional_ids": [],
}  # fmt: skip
THROTTLED = {**CAUSE, "kind": "throttled", "what": "User:anna is throttled", "since_ms": None}


def answer(*causes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "question": {}, "broker": 1, "at_ms": NOW_MS, "causes": list(causes),
        "seen": ["1 partition of 1 topic"], "not_seen": ["logs that broker 2 leads"],
    }  # fmt: skip


class Groups:
    """In place of `Groups`: the group `theirs` may not be described."""

    def __init__(self, client: Any) -> None:
        pass

    def may_describe(self, group: str) -> bool:
        return group != "theirs"


class Transactions:
    """In place of `Transactions`: `theirs` may not be described."""

    def __init__(self, client: Any) -> None:
        pass

    def describe(self, names: Sequence[str]) -> dict[str, Described]:
        refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        errors = {"theirs": refusal, "gone": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
        return {
            name: Described(
                1,
                DescribedTransaction(
                    errors.get(name, ErrorCode.NONE), name, "", 0, NO_TRANSACTION, -1, -1, ()
                ),
            )
            for name in names
        }


@pytest.fixture(autouse=True)
def groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "Groups", Groups)
    monkeypatch.setattr(why, "Transactions", Transactions)


def client() -> FakeClient:
    return FakeClient(cluster_of((1,), orders=[part(0)]))


def test_without_a_question_there_are_forms() -> None:
    page = why.make(asked_of(client(), FakeHere(None)))
    assert list(forms(page)) == ["consumer", "produce", "partition", "slow"] and not notices(page)
    assert all(not each.writes and each.path == "/ui/why" for each in forms(page).values())


def test_causes_come_first_the_blocking_one_on_top() -> None:
    here = FakeHere(None, answer(CAUSE, THROTTLED))
    page = why.make(asked_of(client(), here, produce="orders", principal=""))
    assert here.questions[0][:2] == (About.PRODUCE, "orders")
    assert here.questions[0].principal is None
    assert notices(page, Tone.BAD) == ["orders-0 has no leader"]
    first, second = rows(page, "causes")
    assert (first["kind"], first["since_ms"]) == ("no-leader", NOW_MS - 1_000)
    assert first["evidence"] == "broker 2 is away\nit was in sync"
    assert second["kind"] == "throttled"
    assert rows(page, "seen") == [{"line": "1 partition of 1 topic"}]
    assert len(rows(page, "not_seen")) == 1
    assert forms(page)["produce"].fields[0].value == "orders"


def test_nothing_is_wrong() -> None:
    here = FakeHere(None, answer())
    page = why.make(asked_of(client(), here, slow="1"))
    assert notices(page) == ["nothing is wrong"] and here.questions[0].about is About.SLOW


def test_quotas_need_a_right_of_their_own() -> None:
    asking = client()
    asking.operations = frozenset({Operation.DESCRIBE})
    page = why.make(asked_of(asking, FakeHere(None, answer(THROTTLED)), slow="1"))
    assert notices(page) == ["nothing is wrong"]
    assert "quotas: they need DescribeConfigs on the cluster" in [
        row["line"] for row in rows(page, "not_seen")
    ]


@pytest.mark.parametrize(
    "query",
    [
        {"consumer": "g", "produce": "t"},
        {"partition": "orders"},
        {"partition": "orders/-1"},
        {"principal": "User:a"},
        {"produce": "orders", "principal": "no principal"},
        {"produce": "orders", "batch-bytes": "9" * 20},
    ],
)
def test_a_query_that_is_no_question_asks_nothing(query: dict[str, str]) -> None:
    page = why.make(asked_of(client(), FakeHere(None), **query))
    assert page.status == 400 and len(notices(page, Tone.WARN)) == 1 and forms(page)


def test_names_that_are_no_questions_are_left_out() -> None:
    page = why.make(asked_of(client(), FakeHere(None), format="json", x="y"))
    assert page.status == 200 and not notices(page)


def test_rights_come_before_the_question() -> None:
    asking = client()
    asking.operations = frozenset(Operation) - {Operation.DESCRIBE}
    page = why.make(asked_of(asking, FakeHere(None), slow="1"))
    assert page.status == 403
    page = why.make(asked_of(client(), FakeHere(None), consumer="theirs"))
    assert page.status == 403
    page = why.make(asked_of(client(), FakeHere(None, answer()), consumer="ours"))
    assert page.status == 200
    hidden = client()
    topic = hidden.answer.topics["orders"]._replace(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    hidden.answer.topics["orders"] = topic
    page = why.make(asked_of(hidden, FakeHere(None), partition="orders/0"))
    assert page.status == 403


OF_ORDERS = {**CAUSE, "kind": "of-orders", "topics": ["orders"]}
OF_BILLS = {**CAUSE, "kind": "of-bills", "topics": ["orders", "bills"]}
OF_OURS = {**CAUSE, "kind": "of-ours", "transactional_ids": ["ours", "gone"]}
OF_THEIRS = {**CAUSE, "kind": "of-theirs", "transactional_ids": ["theirs"]}


def of_two_topics() -> FakeClient:
    """`bills` may not be described."""
    asking = FakeClient(cluster_of((1,), orders=[part(0)], bills=[part(0)]))
    hidden = asking.answer.topics["bills"]._replace(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    asking.answer.topics["bills"] = hidden
    return asking


def test_causes_with_names_that_a_visitor_may_not_describe_are_left_out() -> None:
    here = FakeHere(None, answer(OF_ORDERS, OF_BILLS, OF_OURS, OF_THEIRS))
    here.config["authorizer.class.name"] = "an.Authorizer"
    page = why.make(asked_of(of_two_topics(), here, consumer="ours"))
    assert [each["kind"] for each in rows(page, "causes")] == ["of-orders", "of-ours"]
    line = "2 causes with names that you may not see: they need Describe on the topics"
    assert [str(each["line"]).startswith(line) for each in rows(page, "not_seen")] == [False, True]
    here = FakeHere(None, answer(OF_THEIRS))
    here.config["authorizer.class.name"] = "an.Authorizer"
    page = why.make(asked_of(of_two_topics(), here, consumer="ours"))
    assert notices(page) == ["there are causes that you may not see"]


def test_without_an_authorizer_every_cause_may_be_seen() -> None:
    here = FakeHere(None, answer(OF_ORDERS, OF_BILLS, OF_THEIRS))
    page = why.make(asked_of(of_two_topics(), here, consumer="ours"))
    assert len(rows(page, "causes")) == 3 and len(rows(page, "not_seen")) == 1
