"""A cluster as our blocking client sees it: who is there, who leads what; asks until it works.

One link to each broker that was asked. Requests to several brokers leave before the first answer is
waited for. Retriable errors (a leader or coordinator that moved, a topic that is being created, a
lost connection) are tried again with fresh knowledge until the time-out is over.

Nothing happens between two calls: no heartbeat, no refresh. Owner: the thread of its client.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from kbroker.clock import NS_PER_MS, Clock
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.peer import messages
from kbroker.peer.address import Address, parse_addresses
from kbroker.peer.link import Link, network_error
from kbroker.peer.links import SILENCE_MS, Links
from kbroker.peer.messages import ClusterMetadata
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker.security.client_login import ClientLogin

Result = TypeVar("Result")
Refusable = TypeVar("Refusable", bound="HasError")
Encode = Callable[[int], bytes]
Decode = Callable[[Reader, int], Result]

RETRY_BACKOFF_MS: Final = 100
# A topic that stays unknown this long after auto-creation was asked for will not come.
_TOPIC_WAIT_MS_MAX: Final = 5_000
# They change nothing, so they may be sent again.
_READS: Final = frozenset(
    {
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.FETCH,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_OFFSETS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.OFFSET_FETCH,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
    }
)


class HasError(Protocol):
    """What an answer says of one of the things that were asked for."""

    @property
    def error(self) -> ErrorCode: ...


class Ask(NamedTuple):
    """One request to one broker; `encode` gets the version that both sides have."""

    address: Address
    api_key: ApiKey
    encode: Encode
    decode: Decode[Any]


class Cluster:
    """Reached through any of its brokers."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str,
        timeout_ms: int,
        clock: Clock,
        login: ClientLogin | None = None,
        home: int | None = None,
    ) -> None:
        """`home`: the id of the broker at `bootstrap`, which has taken the login. It is asked there
        and not where it is advertised. Another one that refuses the login counts as one that is
        away: it may not know the user yet."""
        self.brokers: dict[int, Address] = {}
        self.clock: Final = clock
        self.timeout_ms: Final = timeout_ms
        self._bootstrap = parse_addresses(bootstrap)
        self._links = Links(client_id, timeout_ms, clock, login)
        self._controller_id = -1
        self._home = home
        self._refusing: dict[Address, tuple[int, str]] = {}  # until when, and what is raised
        self._leaders: dict[str, dict[int, int]] = {}  # by topic and partition
        self._was_connected = False
        self._last_refusal: KafkaError | None = None
        self._asleep = threading.Condition()

    def close(self) -> None:
        """All connections. A later request opens others."""
        self._links.close()

    def deadline_ns(self, timeout_ms: int | None = None) -> int:
        timeout_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        return self.clock.monotonic_ns() + timeout_ms * NS_PER_MS

    def sleep_ms(self, duration_ms: float) -> None:
        with self._asleep:
            deadline_ns = self.clock.monotonic_ns() + round(duration_ms * NS_PER_MS)
            self.clock.wait_until(self._asleep, deadline_ns)

    # --- one request ---

    def link(self, address: Address) -> Link:
        """The one that there is, or another one: see `Links.to`."""
        until_ns, message = self._refusing.get(address, (0, ""))
        if message:
            if self.clock.monotonic_ns() < until_ns:
                raise network_error(message)
            del self._refusing[address]
        try:
            return self._links.to(address)
        except KafkaError as error:
            self._note_refusal(address, error)
            raise

    def _note_refusal(self, address: Address, error: KafkaError) -> None:
        """Raises what counts instead, where another broker than the one at home refuses the login;
        for a while it is not tried again."""
        if self._home is None or error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
            return
        if address in self._bootstrap:
            return
        message = f"{address} refuses the login: {error.message}"
        self._refusing[address] = self.deadline_ns(SILENCE_MS), message
        raise network_error(message) from error

    def _send(
        self, link: Link, api_key: ApiKey, version: int, body: bytes, deadline_ns: int
    ) -> None:
        """It may have to authenticate again."""
        try:
            link.send(api_key, version, body, deadline_ns)
        except KafkaError as error:
            self._note_refusal(link.address, error)
            raise

    def any_broker(self) -> Address:
        """One that answers: known ones first, then the bootstrap list.

        If none answers at the start the user is at fault; later the cluster may be restarting.
        """
        candidates = list(dict.fromkeys([*self.brokers.values(), *self._bootstrap]))
        for address in candidates:
            if self._links.has(address):
                return address
        reasons: list[str] = []
        refused: KafkaError | UserError | None = None
        for address in candidates:
            try:
                self.link(address)
            except UserError as error:  # its certificate is not accepted
                refused = refused or error
            except KafkaError as error:
                if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                    if self._home is not None:
                        raise
                    refused = refused or error
                reasons.append(error.message)
            else:
                self._was_connected = True
                return address
        if refused is not None:
            raise refused
        why = "; ".join(dict.fromkeys(reasons))
        if self._was_connected:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, why)
        raise UserError(why, "is the broker running? name it with -b host:port")

    def ask(
        self,
        address: Address,
        api_key: ApiKey,
        encode: Encode,
        decode: Decode[Result],
        *,
        timeout_ms: int | None = None,
    ) -> Result:
        """One request, once."""
        link = self.link(address)
        version = link.version(api_key)
        deadline_ns = self.deadline_ns(timeout_ms)
        self._send(link, api_key, version, encode(version), deadline_ns)
        return self._decoded(link, api_key, version, decode, deadline_ns)

    def tell(self, address: Address, api_key: ApiKey, encode: Encode) -> None:
        """A request without a response (produce with acks=0)."""
        link = self.link(address)
        version = link.version(api_key)
        body = encode(version)
        link.send(api_key, version, body, self.deadline_ns(), expects_response=False)

    def ask_all(self, asks: Sequence[Ask], *, of_all: bool = True) -> list[Any]:
        """Each once, all at the same time; what fails with a retriable error is that error.

        Any other error is raised, when nothing is due any more on the links. A request that only
        reads is sent a second time if it failed on a link that was opened before: the broker may
        have been restarted, or have closed the connection, since then. To one that is late nothing
        is sent again.

        Not `of_all`: a broker whose certificate is not accepted counts as one that is away.
        """
        kept = {ask.address for ask in asks if self._links.has(ask.address)}
        results = self._ask_each(asks, of_all=of_all)
        late = {ask.address for ask, each in zip(asks, results, strict=True) if _is_late(each)}
        lost = [
            index
            for index, ask in enumerate(asks)
            if ask.address in kept - late and ask.api_key in _READS and _is_lost(results[index])
        ]
        if lost:
            again = self._ask_each([asks[index] for index in lost], of_all=of_all)
            for index, result in zip(lost, again, strict=True):
                results[index] = result
        for result in results:
            if isinstance(result, KafkaError) and not result.code.retriable:
                raise result
        return results

    def _ask_each(self, asks: Sequence[Ask], *, of_all: bool) -> list[Any]:
        """Results and errors. The time that it takes to open links is not that of the answers: one
        broker that hangs must not make the others late."""
        results: list[Any] = [None] * len(asks)
        addresses = dict.fromkeys(ask.address for ask in asks)
        links = {address: self._try_link(address, of_all=of_all) for address in addresses}
        deadline_ns = self.deadline_ns()
        sent: list[tuple[int, Link, int]] = []
        try:
            for index, ask in enumerate(asks):
                link = links[ask.address]
                if isinstance(link, KafkaError):
                    results[index] = link
                    continue
                try:
                    version = link.version(ask.api_key)
                    self._send(link, ask.api_key, version, ask.encode(version), deadline_ns)
                except KafkaError as error:
                    results[index] = error
                else:
                    sent.append((index, link, version))
            for index, link, version in sent:
                ask = asks[index]
                try:
                    results[index] = self._decoded(
                        link, ask.api_key, version, ask.decode, deadline_ns
                    )
                except KafkaError as error:
                    results[index] = error
        except BaseException:
            for link in links.values():
                if not isinstance(link, KafkaError) and link.is_waiting:
                    # Its answer would be taken for that of a later request.
                    link.close()
            raise
        return results

    def _try_link(self, address: Address, *, of_all: bool) -> Link | KafkaError:
        """UserError: the certificate of the broker is not accepted."""
        try:
            return self.link(address)
        except KafkaError as error:
            return error
        except UserError as error:
            if of_all:
                raise
            return network_error(error.cause)

    def _decoded(
        self, link: Link, api_key: ApiKey, version: int, decode: Decode[Result], deadline_ns: int
    ) -> Result:
        reader = link.receive(deadline_ns)
        try:
            return decode(reader, version)
        except ProtocolError as error:
            link.close()
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{link.address} sent a malformed {api_key.label} response: {error}",
            ) from error

    # --- until it works ---

    def retrying(self, attempt: Callable[[], Result]) -> Result:
        deadline_ns = self.deadline_ns()
        while True:
            try:
                return attempt()
            except KafkaError as error:
                if not error.code.retriable or self.clock.monotonic_ns() >= deadline_ns:
                    raise
            self.sleep_ms(RETRY_BACKOFF_MS)

    def anywhere(self, api_key: ApiKey, encode: Encode, decode: Decode[Result]) -> Result:
        return self.retrying(lambda: self.ask(self.any_broker(), api_key, encode, decode))

    def at_broker(
        self, node_id: int, api_key: ApiKey, encode: Encode, decode: Decode[Result]
    ) -> Result:
        """What one broker alone knows or does."""
        if node_id not in self.brokers:
            self.metadata([])
        address = self.brokers.get(node_id)
        if address is None:
            known = ", ".join(map(str, sorted(self.brokers)))
            raise UserError(f"there is no broker {node_id}", f"there are: {known}")
        return self.retrying(lambda: self.ask(address, api_key, encode, decode))

    def at_controller(
        self,
        api_key: ApiKey,
        encode: Encode,
        decode: Callable[[Reader, int], list[Refusable]],
    ) -> list[Refusable]:
        def attempt() -> list[Refusable]:
            self.metadata([])
            address = self.brokers.get(self._controller_id) or self.any_broker()
            results = self.ask(address, api_key, encode, decode)
            if any(result.error is ErrorCode.NOT_CONTROLLER for result in results):
                raise KafkaError(ErrorCode.NOT_CONTROLLER, f"{address} is not the controller")
            return results

        return self.retrying(attempt)

    def everywhere(
        self,
        api_key: ApiKey,
        encode: Encode,
        decode: Decode[Result],
        *,
        of_all: bool = True,
    ) -> dict[int, Result | KafkaError]:
        """Every broker once, at the same time; one that cannot be asked is its error. `of_all`: as
        of `ask_all`."""
        self.metadata([])
        node_ids = sorted(self.brokers)
        answers = self.ask_all(
            [Ask(self.brokers[node_id], api_key, encode, decode) for node_id in node_ids],
            of_all=of_all,
        )
        return dict(zip(node_ids, answers, strict=True))

    def listed_everywhere(
        self,
        api_key: ApiKey,
        encode: Encode,
        decode: Decode[list[Result]],
        may_lack: Collection[ErrorCode] = (),
    ) -> list[tuple[int, Result]]:
        """What all brokers list, each with its broker's id; one that still loads is waited for. One
        that is refused with an error of `may_lack` has nothing in the list."""
        of_all = ErrorCode.NETWORK_EXCEPTION not in may_lack

        def attempt() -> list[tuple[int, Result]]:
            listed: list[tuple[int, Result]] = []
            found_at = self.everywhere(api_key, encode, decode, of_all=of_all)
            for node_id, found in found_at.items():
                if not isinstance(found, KafkaError):
                    listed += [(node_id, each) for each in found]
                elif found.code not in may_lack:
                    raise found
            return listed

        return self.retrying(attempt)

    # --- topics and their leaders ---

    def metadata(
        self, topics: Sequence[str] | None, *, auto_create: bool = False
    ) -> ClusterMetadata:
        answer = self.anywhere(
            ApiKey.METADATA,
            lambda version: messages.encode_metadata(version, topics, auto_create=auto_create),
            messages.decode_metadata,
        )
        brokers = {node_id: Address(b.host, b.port) for node_id, b in answer.brokers.items()}
        if self._home in brokers:
            brokers[self._home] = self._bootstrap[0]
        gone = set(self.brokers.values()) - set(brokers.values()) - set(self._bootstrap)
        self._links.forget(gone)
        for address in gone:
            self._refusing.pop(address, None)
        self.brokers = brokers
        self._controller_id = answer.controller_id
        if topics is None:
            self._leaders.clear()
        for name in topics or ():
            self._leaders.pop(name, None)  # it may be deleted
        for topic in answer.topics.values():
            if topic.partitions:
                self._leaders[topic.name] = {each.index: each.leader for each in topic.partitions}
        return answer

    def bound_leaders(self, topics_max: int) -> None:
        """Forgets all leaders that it knows if they are of more topics: they are asked for again.
        For a client that is kept, and that has asked for all topics."""
        if len(self._leaders) > topics_max:
            self._leaders = {}

    def await_topic(self, name: str, *, auto_create: bool) -> list[int]:
        """Partitions of a topic; waits for leaders, and for a topic that is being created."""
        deadline_ns = self.deadline_ns(min(self.timeout_ms, _TOPIC_WAIT_MS_MAX))
        while True:
            topic = self.metadata([name], auto_create=auto_create).topics.get(name)
            error = topic.error if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic is not None and error is ErrorCode.NONE and topic.partitions:
                if all(partition.leader >= 0 for partition in topic.partitions):
                    return sorted(partition.index for partition in topic.partitions)
                error = ErrorCode.LEADER_NOT_AVAILABLE
            hopeless = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not auto_create
            if hopeless or not error.retriable or self.clock.monotonic_ns() >= deadline_ns:
                raise KafkaError(error, f"topic '{name}'")
            self.sleep_ms(RETRY_BACKOFF_MS)

    def _by_leader(
        self, asked: Mapping[TopicPartition, Any]
    ) -> dict[Address, list[TopicPartition]]:
        """The partitions grouped by their leader's address; metadata is asked where it is old."""
        unknown = {tp.topic for tp in asked if self._leader(tp) not in self.brokers}
        if unknown:
            self.metadata(sorted(unknown))
        grouped: dict[Address, list[TopicPartition]] = {}
        for partition in asked:
            address = self.brokers.get(self._leader(partition))
            if address is not None:
                grouped.setdefault(address, []).append(partition)
        return grouped

    def _leader(self, partition: TopicPartition) -> int:
        """-1: not known, or there is none."""
        return self._leaders.get(partition.topic, {}).get(partition.partition, -1)

    def _leader_moved(self, partitions: Sequence[TopicPartition]) -> None:
        for topic, partition in partitions:
            self._leaders.get(topic, {}).pop(partition, None)

    def ask_leaders(
        self,
        asked: Mapping[TopicPartition, Any],
        api_key: ApiKey,
        encode: Callable[[int, Mapping[TopicPartition, Any]], bytes],
        decode: Decode[dict[TopicPartition, Any]],
        *,
        of_all: bool = True,
    ) -> dict[TopicPartition, Any]:
        """One request to each leader. Partitions of a leader that fails are left out. `of_all`: as
        of `ask_all`."""

        def ask(address: Address, partitions: list[TopicPartition]) -> Ask:
            share = {partition: asked[partition] for partition in partitions}
            return Ask(address, api_key, lambda version: encode(version, share), decode)

        grouped = self._by_leader(asked)
        answers = self.ask_all([ask(*group) for group in grouped.items()], of_all=of_all)
        results: dict[TopicPartition, Any] = {}
        for partitions, answer in zip(grouped.values(), answers, strict=True):
            if isinstance(answer, KafkaError):
                self._leader_moved(partitions)
                self._last_refusal = answer
                continue
            moved = [tp for tp, result in answer.items() if result.error.retriable]
            self._leader_moved(moved)
            if moved:
                self._last_refusal = KafkaError(answer[moved[0]].error, str(moved[0]))
            results |= {tp: result for tp, result in answer.items() if tp not in moved}
        return results

    def send_to_leaders(
        self,
        asked: Mapping[TopicPartition, Any],
        api_key: ApiKey,
        encode: Callable[[int, Mapping[TopicPartition, Any]], bytes],
    ) -> dict[TopicPartition, Any]:
        """As `ask_leaders` where no response comes: None for each partition that was sent."""

        def tell(address: Address, partitions: list[TopicPartition]) -> None:
            share = {partition: asked[partition] for partition in partitions}
            self.tell(address, api_key, lambda version: encode(version, share))

        results: dict[TopicPartition, Any] = {}
        for address, partitions in self._by_leader(asked).items():
            try:
                tell(address, partitions)
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                self._leader_moved(partitions)
                self._last_refusal = error
            else:
                results |= dict.fromkeys(partitions)
        return results

    def until_answered(
        self,
        asked: Mapping[TopicPartition, Any],
        attempt: Callable[[Mapping[TopicPartition, Any]], dict[TopicPartition, Any]],
    ) -> dict[TopicPartition, Any]:
        """Calls `attempt` with the partitions that are left until none is."""
        deadline_ns = self.deadline_ns()
        self._last_refusal = None
        results: dict[TopicPartition, Any] = {}
        left = asked
        while True:
            results |= attempt(left)
            left = {tp: value for tp, value in asked.items() if tp not in results}
            if not left:
                return results
            if self.clock.monotonic_ns() >= deadline_ns:
                if self._last_refusal is not None:
                    raise self._last_refusal
                names = ", ".join(str(tp) for tp in left)
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"no leader for {names}")
            self.sleep_ms(RETRY_BACKOFF_MS)


def _is_lost(result: Any) -> bool:
    return isinstance(result, KafkaError) and result.code is ErrorCode.NETWORK_EXCEPTION


def _is_late(result: Any) -> bool:
    return isinstance(result, KafkaError) and result.code is ErrorCode.REQUEST_TIMED_OUT
