"""The brokers of both sides, and how a case is held with one.

A setup is a set of broker settings, the same for both; a broker of it is started when the first
case needs it and ended with the session. Node 1, one broker, everything else at its default.

Cases are independent of each other, so several are held at a time. Those of the broker whose
settings are changed are held beside them, one by one; others that are `alone` come after all, one
by one.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kbroker.security.client_login import ClientLogin
from kbroker.security.rights import ResourceType
from kbroker.testing.plain import KEEPS_WHAT_IS_OLD
from kbroker.testing.plain import PlainBroker as Broker
from kbroker.testing.process import ServerProcess
from kbroker.types import ApiKey
from tests.parity.book import Case
from tests.parity.requests import build
from tests.parity.talk import Address, Talk
from tests.support import memory
from tests.support.kafka import KafkaBroker

AT_A_TIME: Final = 8
# A kbroker that has held so many cases is ended, and another one begins: with thousands of topics a
# case costs more than twice as much.
CASES_MAX: Final = 800
STOP_TIMEOUT_S: Final = 120.0  # thousands of logs are closed, on a machine that may be busy
COORDINATORS: Final = "coordinators"
SHARE_GROUPS: Final = "share groups"
STREAMS_GROUPS: Final = "streams groups"
SHORT_SESSIONS: Final = "short sessions"
ALTERED: Final = "altered"
DELAY: Final = "a delay"
MIGRATION: Final = "migration"
NO_MIGRATION: Final = "no migration"
# Everything is allowed to 127.0.0.1, the host of preparations; cases have hosts of their own.
AUTHORIZER: Final = "an authorizer"
SHARE_AUTHORIZER: Final = "share groups with an authorizer"
# Whose clients log in, with delegation tokens, too; one of them may do everything.
USERS: Final = "users"
TOKEN_SECRET: Final = "a secret of tokens"
PASSWORD: Final = "a password"
SUPER_USER: Final = "ann"
_USERS: Final = (SUPER_USER, "bob", "cat")
_MODULES: Final = "org.apache.kafka.common.security"


def _plain_login() -> str:
    users = " ".join(f'user_{each}="{PASSWORD}"' for each in _USERS)
    own = f'username="{SUPER_USER}" password="{PASSWORD}"'
    return f"{_MODULES}.plain.PlainLoginModule required {own} {users};"


_ONE_NODE: Final = {
    "node.id": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    **KEEPS_WHAT_IS_OLD,
}
_SHARE_GROUPS: Final = {
    **_ONE_NODE,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}
_AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Until the first ACLs are there.
    "allow.everyone.if.no.acl.found": True,
}
# Not for Apache Kafka, where streams groups are not in work.
_OF_OURS: Final = {"unstable.feature.versions.enable": True}
# Without it ours stores no passwords; Apache Kafka 4.3 does not know it.
_PASSWORDS: Final = {"password.encoder.secret": "of-stored-passwords"}
SETUPS: Final[Mapping[str, Mapping[str, object]]] = {
    "default": _ONE_NODE,
    # Where the coordinators are awake; elsewhere the internal topics are not there.
    COORDINATORS: _SHARE_GROUPS,
    # Where share groups are served.
    SHARE_GROUPS: _SHARE_GROUPS,
    # Where streams groups are served.
    STREAMS_GROUPS: {**_ONE_NODE, **_OF_OURS},
    # Where members of groups are lost soon, and few fit into one.
    SHORT_SESSIONS: {**_ONE_NODE, "group.min.session.timeout.ms": 100, "group.max.size": 3},
    # Long enough for several to come within it, where a machine is busy.
    DELAY: {**_ONE_NODE, "group.initial.rebalance.delay.ms": 2_000},
    AUTHORIZER: {**_ONE_NODE, **_AUTHORIZER},
    SHARE_AUTHORIZER: {**_SHARE_GROUPS, **_AUTHORIZER, **_OF_OURS},
    USERS: {
        **_ONE_NODE,
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.plaintext.plain.sasl.jaas.config": _plain_login(),
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config": (
            f"{_MODULES}.scram.ScramLoginModule required;"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # ANONYMOUS is the controller of Apache Kafka.
        "super.users": f"User:{SUPER_USER};User:ANONYMOUS",
        "delegation.token.secret.key": TOKEN_SECRET,
    },
    # Where groups change their protocol, and assignments are computed at once.
    MIGRATION: {**_ONE_NODE, "group.consumer.assignment.interval.ms": 0},
    NO_MIGRATION: {
        **_ONE_NODE,
        "group.consumer.assignment.interval.ms": 0,
        "group.consumer.migration.policy": "disabled",
    },
    # Whose clients get quotas.
    "quotas": _ONE_NODE,
    # Whose settings are changed while it runs.
    ALTERED: {**_ONE_NODE, **_PASSWORDS},
    # The features that an operator may switch off, or make smaller.
    "closed": {
        **_ONE_NODE,
        "auto.create.topics.enable": False,
        "delete.topic.enable": False,
        "max.request.partition.size.limit": 4,
    },
}
# A group's key, a transaction's, a share's.
COORDINATED: Final = ("g", "t", "g:AAAAAAAAAAAAAAAAAAAAAQ:0")

# How many of these kinds are awake.
_COORDINATORS_OF: Final = {
    COORDINATORS: 3, SHARE_GROUPS: 3, STREAMS_GROUPS: 1, SHARE_AUTHORIZER: 3,
    SHORT_SESSIONS: 1, DELAY: 1,
    AUTHORIZER: 2, MIGRATION: 1, NO_MIGRATION: 1,
}  # fmt: skip

Key = tuple[str, str]  # family, label


@dataclass
class Held:
    """The outcome of a case: its steps, or the failure that ended it."""

    steps: list[Any] = field(default_factory=list)
    failure: str | None = None


class Side:
    """Brokers of one make, one for each setup; a context manager that ends them."""

    def __init__(
        self,
        make: Callable[[Mapping[str, object], Path], ServerProcess],
        cases_max: int = sys.maxsize,
        *,
        stops: bool = True,
    ) -> None:
        """`stops`: in the end, in order; else the brokers are killed."""
        self._make = make
        self._cases_max = cases_max
        self._stops = stops
        self._brokers: dict[str, ServerProcess] = {}
        self._held: Counter[str] = Counter()  # cases of each of them
        self._stack = ExitStack()

    @classmethod
    def kafka(cls) -> Side:
        # Its end is not compared, and after some of the cases it takes minutes.
        return cls(_kafka, stops=False)

    @classmethod
    def kbroker(cls) -> Side:
        return cls(_kbroker, CASES_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            self._stop(list(self._brokers) if error is None and self._stops else [])

    def _stop(self, setups: Iterable[str]) -> None:
        brokers = [self._brokers.pop(setup) for setup in setups]
        with ThreadPoolExecutor() as pool:
            stopping = pool.map(lambda broker: broker.stop(STOP_TIMEOUT_S), brokers)
            for broker, status in zip(brokers, stopping, strict=True):
                if status not in broker.clean_exit_statuses:
                    raise AssertionError(f"{broker.name} ended with status {status}")

    @property
    def brokers(self) -> Iterable[ServerProcess]:
        return self._brokers.values()

    def address(self, setup: str) -> Address:
        broker = self._brokers.get(setup)
        if broker is None:
            # Thousands of logs would be brought to the disk, for no use.
            place = self._stack.enter_context(memory.directory())
            broker = self._make(SETUPS[setup], place / "data")
            self._stack.callback(broker.close)
            broker.start()
            self._brokers[setup] = broker
            self._held[setup] = 0
            if setup in (STREAMS_GROUPS, SHARE_AUTHORIZER):
                _serve_groups(_address(broker), "streams.version")
            coordinated = COORDINATED[: _COORDINATORS_OF.get(setup, 0)]
            _warm_up(_address(broker), coordinated, _login(setup))
            if setup in (AUTHORIZER, SHARE_AUTHORIZER):
                _allow_everything(_address(broker))
        return _address(broker)

    def hold(self, cases: Iterable[tuple[str, Case]]) -> dict[Key, Held]:
        """Hold each (family, case) with the broker of its setup; outcomes in the order given."""
        todo = list(cases)
        altered = [each for each in todo if each[1].setup == ALTERED]
        others = [each for each in todo if each[1].setup != ALTERED]
        together = [each for each in others if not each[1].alone]
        alone = [each for each in others if each[1].alone]
        if altered:
            self.address(ALTERED)
        with ThreadPoolExecutor(1) as beside:
            by_turns = beside.submit(lambda: [self._hold_one(each) for each in altered])
            held = [*self._together(together), *map(self._hold_one, alone)]
            held += by_turns.result()
        keys = [(family, case.label) for family, case in together + alone + altered]
        found = dict(zip(keys, held, strict=True))
        return {(family, case.label): found[family, case.label] for family, case in todo}

    def _together(self, cases: Sequence[tuple[str, Case]]) -> list[Held]:
        held: list[Held] = []
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for first in range(0, len(cases), self._cases_max):
                part = cases[first : first + self._cases_max]
                of_each = Counter(case.setup for _, case in part)
                for setup in of_each:
                    self.address(setup)
                held += pool.map(self._hold_one, part)
                self._held += of_each
                self._stop([s for s in self._brokers if self._held[s] >= self._cases_max])
        return held

    def _hold_one(self, each: tuple[str, Case]) -> Held:
        family, case = each
        login = _login(case.setup)
        talk = Talk(self.address(case.setup), f"{family}: {case.label}", login)
        try:
            case.act(talk)
        except Exception:
            return Held(talk.steps, traceback.format_exc(limit=-4))
        finally:
            talk.close()
        return Held(talk.steps)


def _kafka(overrides: Mapping[str, object], place: Path) -> ServerProcess:
    ours = {**_OF_OURS, **_PASSWORDS}
    return KafkaBroker({k: v for k, v in overrides.items() if k not in ours}, place)


def _kbroker(overrides: Mapping[str, object], place: Path) -> ServerProcess:
    return Broker(overrides, place)


def _address(broker: ServerProcess) -> Address:
    host, _, port = broker.bootstrap.rpartition(":")
    return host, int(port)


def _serve_groups(address: Address, feature: str) -> None:
    """As a new Apache Kafka does."""
    talk = Talk(address, f"the level of {feature}")
    level = {"feature": feature, "max_version_level": 1, "upgrade_type": 1}
    try:
        made = talk.quietly(build(ApiKey.UPDATE_FEATURES, 2, feature_updates=[level]))
        if made.error_code.value:
            raise AssertionError(f"no level of {feature}: {made}")
    finally:
        talk.close()


def _allow_everything(address: Address) -> None:
    """To the host that prepares cases; so no other host may do anything from here on."""
    talk = Talk(address, "rights of those who prepare")
    creations = [
        {
            "host": "127.0.0.1",
            "principal": "User:ANONYMOUS",
            "permission_type": 3,
            "resource_type": type_,
            "resource_name": "kafka-cluster" if type_ == ResourceType.CLUSTER else "*",
            "resource_pattern_type": 3,
            "operation": 2,
        }
        for type_ in ResourceType
        if type_ is not ResourceType.ANY
    ]
    try:
        made = talk.quietly(build(ApiKey.CREATE_ACLS, 3, creations=creations))
        if any(each.error_code.value for each in made.results):
            raise AssertionError(f"no rights: {made}")
    finally:
        talk.close()


def _login(setup: str) -> ClientLogin | None:
    """Of a case's connections, where they say no other."""
    return login_of(SUPER_USER) if setup == USERS else None


def login_of(user: str) -> ClientLogin:
    """Of a user of the setup USERS."""
    return ClientLogin("PLAIN", user, PASSWORD)


def _warm_up(address: Address, coordinated: Sequence[str], login: ClientLogin | None) -> None:
    """Wait for parts that an Apache Kafka has only a moment after its start, or its first use."""
    talk = Talk(address, "warm up", login)
    asked = build(ApiKey.INIT_PRODUCER_ID, 1, transaction_timeout=60_000)
    try:
        talk.until(lambda: talk.quietly(asked).error_code.value == 0)
        for kind, key in enumerate(coordinated):
            find = build(ApiKey.FIND_COORDINATOR, 6, key_type=kind, coordinator_keys=[key])
            talk.until(lambda find=find: talk.quietly(find).coordinators[0].error_code.value == 0)
    finally:
        talk.close()
