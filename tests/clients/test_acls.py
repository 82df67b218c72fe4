"""`kbroker acl` beside Apache Kafka's `kafka-acls`, on one broker with users and an authorizer.

Both make the same ACLs from the same words, each lists those of the other, and `explain` answers as
the broker decides.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbroker.cli.main import main
from kbroker.errors import ErrorCode
from kbroker.peer.acl_messages import decode_delete_acls, encode_delete_acls
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.security.acl_filter import AclFilter
from kbroker.security.acls import PatternType, Permission
from kbroker.security.rights import Operation, ResourceType
from kbroker.testing.plain import PlainBroker
from kbroker.testing.process import ServerProcess
from kbroker.types import ApiKey
from tests.clients.agents.pair import Pair
from tests.clients.agents.tools import Tools

pytestmark = [pytest.mark.client, pytest.mark.java]

TOOL = "AclCommand"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[ServerProcess]:
    overrides = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "offsets.topic.num.partitions": 1,
    }
    with PlainBroker(overrides) as made:
        yield made


@pytest.fixture
def run(broker: ServerProcess, capsys: pytest.CaptureFixture[str]) -> Run:
    def kbroker(*words: str) -> tuple[int, str, str]:
        status = main(["acl", *words, "-b", broker.bootstrap])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return kbroker


@pytest.fixture(autouse=True)
def no_acls(broker: ServerProcess) -> Iterator[None]:
    yield
    everything = AclFilter(
        ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY
    )
    with Client(broker.bootstrap) as client:
        client.cluster.at_controller(
            ApiKey.DELETE_ACLS,
            lambda version: encode_delete_acls(version, [everything]),
            decode_delete_acls,
        )


def listed(run: Run) -> set[tuple[Any, ...]]:
    status, out, _ = run("list", "-o", "json")
    assert status == 0
    return {tuple(each.values()) for each in json.loads(out)}


SAME_WORDS = [
    ("--allow-principal", "User:anna", "--operation", "Read", "--topic", "t"),
    ("--allow-principal", "User:anna", "--topic", "t"),
    (
        "--allow-principal", "User:anna", "--allow-host", "10.0.0.7", "--deny-principal",
        "User:bert", "--operation", "Read", "--operation", "AlterConfigs", "--topic", "t",
        "--resource-pattern-type", "prefixed",
    ),
    ("--allow-principal", "User:anna", "--producer", "--topic", "t"),
    (
        "--allow-principal", "User:anna", "--producer", "--idempotent", "--topic", "t",
        "--transactional-id", "x",
    ),
    ("--allow-principal", "User:anna", "--consumer", "--topic", "*", "--group", "g"),
    (
        "--allow-principal", "User:anna", "--consumer", "--producer", "--topic", "t", "--group",
        "g",
    ),
    ("--allow-principal", "User:anna", "--operation", "Describe", "--cluster"),
    (
        "--allow-principal", "User:anna", "--operation", "CreateTokens", "--user-principal",
        "User:bert",
    ),
    ("--allow-principal", "User:anna", "--operation", "Describe", "--delegation-token", "id"),
]  # fmt: skip


@pytest.mark.parametrize("words", SAME_WORDS, ids=lambda words: " ".join(words[2:6]))
def test_the_same_words_make_the_same_acls(
    broker: ServerProcess, run: Run, tools: Tools, words: tuple[str, ...]
) -> None:
    status, out, err = run("add", *words)
    assert status == 0, err
    ours = listed(run)
    assert out.count("added: ") == len(ours) > 0
    assert run("remove", "--force", *words)[0] == 0
    assert listed(run) == set()
    done = tools.attempt(TOOL, "--bootstrap-server", broker.bootstrap, "--add", *words)
    assert done.returncode == 0, done.stderr.decode()
    assert listed(run) == ours
    # And ours takes away what theirs has made.
    assert run("remove", "--force", *words)[0] == 0
    assert listed(run) == set()


REFUSED = [
    ("--operation", "Read", "--topic", "t"),
    ("--allow-principal", "User:anna", "--operation", "Read"),
    ("--allow-principal", "User:anna", "--operation", "ClusterAction", "--topic", "t"),
    ("--allow-principal", "User:anna", "--consumer", "--topic", "t"),
    ("--allow-principal", "User:anna", "--producer", "--operation", "Read", "--topic", "t"),
    ("--deny-principal", "User:anna", "--producer", "--topic", "t"),
]


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_the_same_words_are_refused(
    broker: ServerProcess, run: Run, tools: Tools, words: tuple[str, ...]
) -> None:
    assert run("add", *words)[0] == 2
    done = tools.attempt(TOOL, "--bootstrap-server", broker.bootstrap, "--add", *words)
    assert done.returncode != 0
    assert listed(run) == set()


def test_a_removal_lists_its_acls_and_asks(run: Run) -> None:
    assert run("add", "--allow-principal", "User:anna", "--topic", "t")[0] == 0
    status, _, err = run("remove", "--topic", "t")
    assert status == 2 and "add --force" in err
    assert run("remove", "--topic", "t", "--force")[1] == (
        "removed: allow User:anna All topic t from *\n"
    )
    assert run("remove", "--topic", "t", "--force")[1] == "no such ACL\n"


def test_a_list_of_some(run: Run) -> None:
    run("add", "--allow-principal", "User:anna", "--topic", "ord",
        "--resource-pattern-type", "prefixed")  # fmt: skip
    run("add", "--allow-principal", "User:bert", "--operation", "Read", "--topic", "orders")
    out = run("list", "--topic", "orders", "--resource-pattern-type", "match")[1]
    assert out.splitlines()[0].split() == [
        "RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION",
    ]  # fmt: skip
    assert len(out.splitlines()) == 3
    out = run("list", "--principal", "User:bert")[1]
    assert out.splitlines()[1].split() == [
        "topic", "orders", "literal", "User:bert", "*", "Read", "allow",
    ]  # fmt: skip


def test_explain_answers_as_the_broker_decides(broker: ServerProcess, run: Run) -> None:
    run("add", "--allow-principal", "User:anna", "--operation", "Read", "--topic", "ord",
        "--resource-pattern-type", "prefixed")  # fmt: skip
    run("add", "--deny-principal", "User:*", "--deny-host", "10.0.0.8", "--operation", "All",
        "--topic", "*")  # fmt: skip

    def explained(*words: str) -> dict[str, Any]:
        status, out, err = run("explain", *words, "-o", "json")
        assert status == 0, err
        document: dict[str, Any] = json.loads(out)
        return document

    answer = explained("User:anna", "Describe", "topic:orders")
    assert answer["allowed"] and answer["reason"] == "MatchingAcl"
    assert (answer["acl"]["resource_name"], answer["acl"]["operation"]) == ("ord", "Read")
    assert answer["other_answer_for_hosts"] == ["10.0.0.8"]
    answer = explained("User:anna", "Read", "topic:orders", "--host", "10.0.0.8")
    assert not answer["allowed"] and answer["acl"]["permission"] == "deny"
    assert explained("User:ANONYMOUS", "Alter", "cluster")["reason"] == "SuperUser"
    answer = explained("User:bert", "Read", "group:g")
    assert not answer["allowed"] and answer["reason"] == "DefaultDeny"


def test_a_user_without_the_right(broker: ServerProcess, run: Run) -> None:
    """Super users are a setting of the start; another broker's client is refused."""
    overrides = {**broker.overrides, "super.users": "User:other"}
    with PlainBroker(overrides) as closed, Client(closed.bootstrap) as client:
        assert main(["acl", "list", "-b", closed.bootstrap]) == 1
        (result,) = client.create_topics([NewTopic("t", 1)])
        assert result.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_cluster_without_an_authorizer(capsys: pytest.CaptureFixture[str]) -> None:
    from kbroker.testing.plain import PlainBroker

    with PlainBroker() as open_to_all:
        words = ["acl", "explain", "User:anna", "Read", "topic:t", "-b", open_to_all.bootstrap]
        assert main(words) == 0
        assert "has no authorizer" in capsys.readouterr().out


# --- kafka-acls -----------------------------------------------------------------------------------


@pytest.fixture
def acls(tools: Tools, broker: ServerProcess) -> Pair:
    return Pair(tools, broker.bootstrap, TOOL, "kafka-acls", within=True, unordered=True)


def test_acls_from_their_addition_to_their_end(acls: Pair) -> None:
    printed = acls.each(
        """
        --list
        --add --allow-principal User:bob --operation Read --topic TOPIC --topic TOPIC.2
 --group TOPIC
        --add --allow-principal User:bob --operation Read --operation describeconfigs --topic TOPIC
        --add --allow-principal User:ann --allow-host 10.0.0.1 --allow-host 10.0.0.2
 --deny-principal User:eve --operation Describe --topic TOPIC
        --add --allow-principal User:bob --producer --topic TOPIC.p --transactional-id TOPIC
        --add --allow-principal User:bob --consumer --topic TOPIC.p --group TOPIC.g
        --add --allow-principal User:bob --operation Read --topic TOPIC --resource-pattern-type
 prefixed
        --add --allow-principal User:bob --delegation-token TOPIC --user-principal User:TOPIC
        --list --topic TOPIC
        --list --topic TOPIC.x --resource-pattern-type match
        --list --topic TOPIC.p --group TOPIC.g --principal User:bob --principal User:none
        --remove --topic TOPIC.2 --force
        --remove --allow-principal User:bob --consumer --topic TOPIC.p --group TOPIC.g --force
        --remove --topic TOPIC --resource-pattern-type prefixed --force
        --list --topic TOPIC.p
        --list --topic TOPIC --resource-pattern-type any
        """.replace("\n --", " --").replace("\n pre", " pre"),
        status=0,
    )
    assert "already exists." in printed and "operation=DESCRIBE_CONFIGS" in printed


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--add --list", "Command must include exactly one action"),
        ("--add --allow-principal User:x --topic a --resource-pattern-type any", "'ANY' is not"),
        ("--add --topic a", "no principal is named"),
        ("--add --allow-principal User:x --operation Create --group a", "CREATE"),
        ("--add --allow-principal User:x --consumer --topic a", "a consumer needs its group"),
        ("--remove --force", "no resource is named"),
        ("--list --no-such", "no-such is not a recognized option"),
    ],
)
def test_acls_that_cannot_be_asked_for(acls: Pair, words: str, line: str) -> None:
    """The words for options that do not go together are those of `kbroker acl`."""
    ours = acls.both(*words.split(), alone=True)
    assert ours.status == acls.theirs(*words.split()).status == 1
    assert ours.output == "" and line.lower() in ours.trouble.lower()


def test_a_removal_that_is_asked_about(
    acls: Pair, broker: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ("--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "TOPIC")
    acls.both(*both)
    for words in (("--topic", "TOPIC"), both[1:]):
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        ours = acls.both("--remove", *words, alone=True)
        name = acls.names()[0]
        theirs = acls.theirs("--remove", *(each.replace("TOPIC", name) for each in words))
        question = theirs.output[: theirs.output.index("Error while")]
        assert ours.output.replace(acls.names()[1], name) == question
    assert "operation=READ" in acls.both("--list", "--topic", "TOPIC").output
    monkeypatch.setattr("sys.stdin", io.StringIO("Y\n"))
    acls.both("--remove", "--topic", "TOPIC", alone=True)
    assert acls.both("--list", "--topic", "TOPIC", alone=True).output == ""


def test_acls_without_an_authorizer(tools: Tools) -> None:
    with PlainBroker() as broker:
        pair = Pair(tools, broker.bootstrap, TOOL, "kafka-acls", within=True)
        for words in ("--list", "--add --allow-principal User:x --topic a",
                      "--remove --topic a --force"):  # fmt: skip
            ours = pair.both(*words.split(), alone=True)
            assert ours.status == 1
            assert ours.output == pair.theirs(*words.split()).output.partition("\n")[0] + "\n"
