"""The authorizer over an image's ACLs, and the log of its denials."""

from __future__ import annotations

import logging
from typing import Any
from unittest.mock import Mock, call

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.clock import ManualClock
from kbroker.security.acl_set import AclSet
from kbroker.security.acls import Acl, Entry, Pattern, PatternType, Permission
from kbroker.security.authorizer import AclAuthorizer, Decision, Rules, super_users
from kbroker.security.denials import Denials
from kbroker.security.hosts import java_host
from kbroker.security.rights import OPERATIONS, Operation, Resource, ResourceType
from kbroker.security.session import Principal, Session
from kbroker.types import ApiKey
from tests.support.acls import acl_set

T, U = Resource(ResourceType.TOPIC, "t"), Resource(ResourceType.TOPIC, "u")
DENIED_LINE = (
    "Principal = User:anna is Denied operation = READ from host = 0:0:0:0:0:0:0:1 "
    "on resource = Topic:LITERAL:t for request = Fetch with resourceRefCount = 2 "
    "based on rule DefaultDeny"
)


def session(name: str = "anna") -> Session:
    return Session(Principal("User", name), "c", "PLAINTEXT", "::1")


class World:
    def __init__(self, rules: Rules | None = None) -> None:
        self.acls: AclSet = acl_set([])
        self.clock = ManualClock()
        self.denials = Denials(self.clock)
        rules = rules or Rules(super_users("User:root"))
        self.authorizer = AclAuthorizer(rules, lambda: self.acls, self.denials)

    def denied(self, *resources: Resource, name: str = "anna", quiet: bool = False) -> set[str]:
        found = self.authorizer.authorize(
            session(name), Operation.READ, resources, ApiKey.FETCH, quiet=quiet
        )
        return {each.name for each in found}

    def operations(self, type_: ResourceType, name: str, of: str = "anna") -> int:
        return self.authorizer.operations(session(of), type_)(name)

    def decided_one_by_one(self, type_: ResourceType, name: str, of: str = "anna") -> int:
        resource = [Resource(type_, name)]
        return sum(
            1 << each
            for each in OPERATIONS[type_]
            if not self.authorizer.decide(session(of), each, resource, ApiKey.METADATA, quiet=True)
        )


def allow(name: str, host: str = "*", kind: PatternType = PatternType.LITERAL) -> Acl:
    pattern = Pattern(ResourceType.TOPIC, kind, name)
    return Acl(pattern, Entry("User:anna", host, Operation.READ, Permission.ALLOW))


def test_the_acls_of_the_moment_decide() -> None:
    world = World()
    assert world.denied(T, U) == {"t", "u"}
    world.acls = acl_set([allow("t", "0:0:0:0:0:0:0:1")])
    assert world.denied(T, U) == {"u"}
    assert world.denied(T, U, name="root") == set()
    world.acls = acl_set([])
    assert world.denied(T) == {"t"}


def test_a_resource_without_acls_may_be_open_to_everyone() -> None:
    world = World(Rules(allow_if_no_acl=True))
    world.acls = acl_set([allow("u", host="10.0.0.1")])
    assert world.denied(T, U) == {"u"}


class Counted(Rules):
    """These rules, and how often they have decided."""

    decided = 0

    def decide(self, *asked: Any) -> Decision:
        Counted.decided += 1
        return super().decide(*asked)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(Counted, "decided", 0)
    return World(Counted())


def test_a_right_is_decided_once_until_the_acls_change(counted: World) -> None:
    counted.acls = acl_set([allow("t")])
    assert [counted.denied(T) for _ in range(3)] == [set(), set(), set()]
    assert Counted.decided == 1
    assert counted.denied(T, name="bert") == {"t"}
    counted.acls = acl_set([allow("u")])
    assert counted.denied(T, U) == {"t"}
    assert counted.denied(T, U) == {"t"}
    assert Counted.decided == 6
    assert [counted.denied(U) for _ in range(2)] == [set(), set()]
    assert Counted.decided == 6


def test_known_rights_are_bounded(counted: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.security.authorizer.KNOWN_RIGHTS_MAX", 2)
    monkeypatch.setattr("kbroker.security.authorizer.KNOWN_RIGHT_CHARS_MAX", 20)
    long = Resource(ResourceType.TOPIC, "x" * 20)
    counted.acls = acl_set([allow(each) for each in ("t", "u", "v", long.name)])
    for resource in (T, U, Resource(ResourceType.TOPIC, "v")):
        assert counted.denied(resource) == set()
    assert Counted.decided == 3
    assert counted.denied(T) == counted.denied(T) == set()
    assert Counted.decided == 4
    assert counted.denied(long) == counted.denied(long) == set()
    assert Counted.decided == 6


def test_requests_of_the_hot_path_put_their_verdicts_there_again(counted: World) -> None:
    counted.acls = acl_set([allow("t")])
    kept = counted.authorizer.kept = Mock(generation=7, served={ApiKey.FETCH})
    assert [counted.denied(T) for _ in range(2)] == [set(), set()]
    assert kept.allowed.mock_calls == [call(session(), Operation.READ, T, 7)] * 2
    asked = session(), Operation.READ, [T]
    assert not counted.authorizer.authorize(*asked, ApiKey.JOIN_GROUP)
    assert kept.allowed.call_count == Counted.decided == 2


def test_some_topic_is_enough_for_an_idempotent_producer() -> None:
    world = World()
    acl = allow("t", kind=PatternType.PREFIXED)
    world.acls = acl_set([acl._replace(entry=acl.entry._replace(operation=Operation.WRITE))])
    asked = Operation.WRITE, ResourceType.TOPIC, ApiKey.INIT_PRODUCER_ID
    assert world.authorizer.authorize_by_type(session(), *asked)
    assert not world.authorizer.authorize_by_type(session("bert"), *asked)
    assert world.authorizer.authorize_by_type(session("root"), *asked)


def test_a_denial_is_logged_once_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kbroker.authorizer")
    world = World()
    world.denied(T, T)
    assert caplog.messages == [DENIED_LINE]
    first = world.clock.wall_ms()
    for _ in range(1_000):
        world.denied(T, T)
    world.clock.advance(ms=9_999)
    world.denied(T, T)
    last = world.clock.wall_ms()
    world.denials.write()
    assert caplog.messages == [DENIED_LINE]
    world.clock.advance(ms=1)
    world.denials.write()
    assert caplog.messages[1:] == [
        f"{DENIED_LINE} (1001 times, from {first} to {last} ms of the epoch)"
    ]
    # The next ones are counted as well, and are forgotten 10 s after the last of them.
    world.denied(T)
    world.clock.advance(ms=10_000)
    world.denials.write()
    assert len(caplog.messages) == 3 and "(1 times, " in caplog.messages[-1]
    world.clock.advance(ms=10_000)
    world.denials.write()
    world.denied(T, T)
    assert caplog.messages[3:] == [DENIED_LINE]


def test_quiet_denials_and_those_beyond_the_bound(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.security.denials.DENIALS_MAX", 1)
    caplog.set_level(logging.INFO, "kbroker.authorizer")
    world = World()
    assert world.denied(T, quiet=True) == {"t"}
    assert not caplog.messages
    world.denied(T)
    world.denied(U)
    world.denied(U)
    world.denials.write()
    assert len(caplog.messages) == 2
    assert caplog.messages[1].startswith("2 more denials")


def test_one_that_invents_names_hides_no_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.security.denials.DENIALS_OF_ONE_MAX", 2)
    caplog.set_level(logging.INFO, "kbroker.authorizer")
    world = World()
    names = [Resource(ResourceType.GROUP, f"{'g' * 30_000}{number}") for number in range(5)]
    world.denied(*names, name="mallory")
    world.denied(T)
    assert [each.split(" is ")[0] for each in caplog.messages] == [
        "Principal = User:mallory", "Principal = User:mallory", "Principal = User:anna"
    ]  # fmt: skip
    assert max(map(len, caplog.messages)) < 1_000
    caplog.clear()
    for _ in range(2):
        world.clock.advance(10_000)
        world.denials.write()
    assert caplog.messages == ["3 more denials of User:mallory, of too many kinds for a line each"]
    world.denied(*names, name="mallory")
    assert len(caplog.messages) == 3


def test_a_denial_keeps_no_long_name() -> None:
    """A name of a group may have 32 KB, and a request three thousand of them."""
    world = World()
    world.denied(Resource(ResourceType.GROUP, "g" * 30_000))
    (kept,) = world.denials._counted
    assert len(kept.resource.name) < 300


def test_a_name_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kbroker.authorizer")
    World().denied(Resource(ResourceType.TOPIC, "a\nPrincipal = User:root is Allowed"))
    (message,) = caplog.messages
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("", set()),
        ("User:a", {"User:a"}),
        (" User:CN=a,O=b ; User:c;; ", {"User:CN=a,O=b", "User:c"}),
        ("User:a:b", {"User:a:b"}),
    ],
)
def test_super_users(text: str, users: set[str]) -> None:
    assert super_users(text) == users


@pytest.mark.parametrize("text", ["a", "User:", ":a", "User:a;b"])
def test_super_users_that_are_no_principals(text: str) -> None:
    with pytest.raises(ValueError, match="TYPE:NAME"):
        super_users(text)


@pytest.mark.parametrize(
    ("host", "printed"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::a", "2001:db8:0:0:0:0:0:a"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("a:b", "a:b"),
    ],
)
def test_addresses_as_java_prints_them(host: str, printed: str) -> None:
    assert java_host(host) == printed


class Compared(str):
    """A name that counts how often it is compared with another."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_request_of_many_resources_costs_as_much_for_each_as_one_of_few() -> None:
    world, count = World(), 300
    many = [Resource(ResourceType.TOPIC, Compared(f"t{number}")) for number in range(count)]
    Compared.times = 0
    assert len(world.denied(*many)) == count
    assert Compared.times < 10 * count


NAMES = ("t", "to", "top", "other", "*")
ACLS = st.lists(
    st.builds(
        Acl,
        st.builds(
            Pattern,
            st.sampled_from((ResourceType.TOPIC, ResourceType.GROUP)),
            st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
            st.sampled_from(NAMES),
        ),
        st.builds(
            Entry,
            st.sampled_from(("User:anna", "User:bob", "User:*")),
            st.sampled_from(("*", "0:0:0:0:0:0:0:1", "10.0.0.1")),
            st.sampled_from([each for each in Operation if each is not Operation.ANY]),
            st.sampled_from((Permission.ALLOW, Permission.DENY)),
        ),
    ),
    max_size=12,
)


@given(acls=ACLS, is_open=st.booleans())
def test_all_operations_at_once_are_those_that_are_allowed_one_by_one(
    acls: list[Acl], is_open: bool
) -> None:
    world = World(Rules(super_users("User:root"), is_open))
    world.acls = acl_set(acls)
    for type_ in (ResourceType.TOPIC, ResourceType.GROUP):
        for name in (*NAMES, "topic", ""):
            for of in ("anna", "root"):
                found = world.operations(type_, name, of)
                assert found == world.decided_one_by_one(type_, name, of)


def test_operations_are_of_the_acls_of_the_moment_and_logged_nowhere() -> None:
    world = World()
    assert world.operations(ResourceType.TOPIC, "t") == 0
    world.acls = acl_set([allow("t")])
    assert (
        world.operations(ResourceType.TOPIC, "t") == 1 << Operation.READ | 1 << Operation.DESCRIBE
    )
    assert list(world.authorizer.denied_lately()) == []
