"""The store against a dictionary: any sequence of calls, restarts included, ends the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kbroker.metadata.store.base import (
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    MultiError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    StoreError,
    parent_of,
)
from tests.unit.metadata.store.harness import IMPLEMENTATIONS, Harness, Make

_PATHS = st.lists(st.sampled_from(["a", "b", "a.b", "0"]), min_size=1, max_size=3).map(
    lambda segments: "/" + "/".join(segments)
)
_DATA = st.binary(max_size=4)
_VERSIONS = st.none() | st.integers(0, 3)
_OPERATIONS = st.one_of(
    st.builds(Create, _PATHS, _DATA, st.booleans(), st.just(False)),  # numbers are the store's own
    st.builds(Set, _PATHS, _DATA, _VERSIONS),
    st.builds(Delete, _PATHS, _VERSIONS),
    st.builds(Check, _PATHS, st.integers(0, 3)),
)


class Model:
    """What the contract says, in the plainest way."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0)}

    def multi(self, operations: list[Operation], session: int) -> list[int]:
        before = dict(self.nodes)
        versions: list[int] = []
        for index, operation in enumerate(operations):
            try:
                versions.append(self._apply(operation, session))
            except StoreError as error:
                self.nodes = before
                raise MultiError(index, error) from None
        return versions

    def end_session(self, session: int) -> None:
        self.nodes = {p: n for p, n in self.nodes.items() if n.owner != session}

    def _apply(self, operation: Operation, session: int) -> int:
        path = operation.path
        node = self.nodes.get(path)
        if isinstance(operation, Create):
            parent = self.nodes.get(parent_of(path))
            if node is not None:
                raise NodeExistsError(path)
            if parent is None:
                raise NoNodeError(path)
            if parent.owner:
                raise EphemeralParentError(path)
            self.nodes[path] = Node(operation.data, 0, session if operation.ephemeral else 0)
            return 0
        if node is None:
            raise NoNodeError(path)
        if operation.version is not None and node.version != operation.version:
            raise BadVersionError(path)
        if isinstance(operation, Set):
            self.nodes[path] = Node(operation.data, node.version + 1, node.owner)
            return node.version + 1
        if isinstance(operation, Check):
            return node.version
        if any(parent_of(other) == path for other in self.nodes if other != "/"):
            raise NotEmptyError(path)
        del self.nodes[path]
        return -1


def outcome(call: Callable[[], Any]) -> object:
    try:
        return call()
    except MultiError as error:
        return error.index, type(error.cause)


def machine(make: Callable[[Path], Harness]) -> type[RuleBasedStateMachine]:
    class Comparison(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.directory = tempfile.TemporaryDirectory()
            self.harness = make(Path(self.directory.name))
            self.sessions = [self.harness.session(), self.harness.session()]
            self.model = Model()

        @rule(which=st.integers(0, 1), operations=st.lists(_OPERATIONS, max_size=4))
        def multi(self, which: int, operations: list[Operation]) -> None:
            session = self.sessions[which]
            assert outcome(lambda: session.multi(operations)) == outcome(
                lambda: self.model.multi(operations, session.session_id)
            )

        @rule(which=st.integers(0, 1), expire=st.booleans())
        def end_session(self, which: int, expire: bool) -> None:
            session = self.sessions[which]
            self.model.end_session(session.session_id)
            if expire:
                self.harness.expire(session)
            else:
                session.close()
            self.sessions[which] = self.harness.session()

        @rule()
        def restart(self) -> None:
            for session in self.sessions:
                self.model.end_session(session.session_id)
            self.harness.reopen()
            self.sessions = [self.harness.session(), self.harness.session()]

        @invariant()
        def same_tree(self) -> None:
            found: dict[str, Node] = {}
            paths = ["/"]
            while paths:
                path = paths.pop()
                found[path] = self.sessions[0].get(path)._replace(created=0)
                children = self.sessions[1].children_data(path)
                assert list(children) == sorted(children) == self.sessions[0].children(path)
                paths.extend(f"{path.rstrip('/')}/{name}" for name in children)
            assert found == self.model.nodes

        def teardown(self) -> None:
            self.harness.close()
            self.directory.cleanup()

    return Comparison


@pytest.mark.parametrize("make", IMPLEMENTATIONS)
def test_against_the_model(make: Make, request: pytest.FixtureRequest) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    networked = "zookeeper" in request.node.name
    run_state_machine_as_test(
        machine(lambda directory: make(request, directory)),
        settings=settings(
            max_examples=12 if networked else 40,  # each call of one is a round trip
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
