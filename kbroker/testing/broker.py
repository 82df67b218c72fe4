"""The broker of an application's tests: real TCP, real files, and a test's hand on it.

    with Broker(topics={"orders": 3}) as b:
        producer = Producer({"bootstrap.servers": b.bootstrap})     # any client, any language
        b.on(ApiKey.PRODUCE, error="NOT_LEADER_OR_FOLLOWER", times=2)
        b.delay(ApiKey.FETCH, ms=300)
        b.drop_connections()
        b.clock.advance(hours=169)
        assert [r.value for r in b.records("orders")] == [b"one"]
        b.wait_for(group="billing", state="Stable", members=2)

It runs in a process of its own on a free port, with its data in a temporary directory, because a
broker inside the tested process would share its interpreter lock, its signals and its event loop;
`in_process=True` runs it there all the same, which starts faster and can be stepped through.
`async with` is the same from a coroutine. restart() keeps data and port; faults go with the
process.

What differs from `kbroker start`: __consumer_offsets has one partition, no record goes before
apply_retention() or compact(), or a day later, and requests of an API with a rule (or of all, with
`trace=True`) take the way through Python: see inspected.py. Everything else is as people run it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kbroker.errors import ErrorCode, InvariantError, KafkaError
from kbroker.testing.control import ControlClient
from kbroker.testing.faults import Seen
from kbroker.testing.inspection import Inspected, Inspection
from kbroker.testing.plain import KEEPS_WHAT_IS_OLD, PlainBroker
from kbroker.testing.process import Process
from kbroker.testing.secured import DEFAULT_MECHANISM, INSIDE, Secured, Wanted
from kbroker.types import ApiKey

DEFAULTS: Final[Mapping[str, object]] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    **KEEPS_WHAT_IS_OLD,
    "log.cleaner.enable": False,  # `compact` cleans nevertheless
}

THROTTLED: Final = (ApiKey.PRODUCE, ApiKey.FETCH)

Order = Callable[[dict[str, Any]], Any]


class Rule:
    """A fault that waits for its requests; `remove` ends it, and so does a `with` block's end."""

    def __init__(self, order: Order, number: int) -> None:
        self._order = order
        self._number = number

    @property
    def hits(self) -> int:
        """How many requests it has met."""
        return int(self._order({"op": "hits", "number": self._number}))

    def remove(self) -> None:
        self._order({"op": "off", "number": self._number})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class BrokerClock:
    """The broker's clock: the machine's, and what was added to it."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def advance(
        self, *, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: float = 0
    ) -> None:
        """Let time pass in the broker: sessions, timers, the expiry of offsets see it; long polls
        do not, nor do the timestamps that a topic with LogAppendTime gives."""
        seconds += 60 * (minutes + 60 * hours)
        self._order({"op": "advance", "ms": 1000 * seconds + ms})

    def now_ms(self) -> int:
        return int(self._order({"op": "now_ms"}))


class Broker(PlainBroker, Inspected):
    __test__ = False  # a test may import it under a name that pytest takes for a test's

    def __init__(
        self,
        overrides: Mapping[str, object] | None = None,
        data_dir: str | Path | None = None,
        port: int = 0,
        *,
        topics: Mapping[str, int] | None = None,
        users: Mapping[str, str] | None = None,
        tls: bool = False,
        acls: Sequence[str] | None = None,
        trace: bool = False,
        in_process: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> None:
        """`topics` by name and partitions; `trace` notes every request, hot ones too. `users` by
        name and password; `acls` as "alice Read topic:orders": see secured.py."""
        super().__init__({**DEFAULTS, **(overrides or {})}, data_dir, port, env=env, cwd=cwd)
        self._secured = self._secure(Wanted(users or {}, tls, acls))
        self._topics = dict(topics or {})
        self._trace = trace
        self._in_process = in_process
        self._order: Order | None = None
        self._inspection: Inspection | None = None
        self._inspecting = threading.RLock()
        self._has_rules = False
        self.clock: Final = BrokerClock(self._tell)

    # --- its process ------------------------------------------------------------------------------

    @property
    def in_process(self) -> bool:
        return self._in_process

    @property
    def inspected(self) -> bool:
        """Whether a connection of this object's own is open, by which records were read."""
        return self._inspection is not None

    @property
    def control_path(self) -> Path:
        return self.scratch_dir / "control"

    def program(self) -> list[str]:
        return ["-m", "kbroker.testing.run", str(self.control_path)]

    def _secure(self, wanted: Wanted) -> Secured | None:
        if not wanted.is_any:
            return None
        if "listeners" in self.overrides:
            raise ValueError("users and TLS have listeners of their own: leave listeners out")
        secured = Secured(wanted, self.scratch_dir)
        self.overrides = {**secured.settings(), **self.overrides}
        return secured

    def command(self) -> list[str]:
        if self._secured is not None:
            self.overrides["listeners"] = self._secured.listeners(self.port)
        return super().command()

    def prepare(self) -> None:
        super().prepare()
        if self._secured is not None:
            self._secured.prepare(self.data_dir)
        self.control_path.unlink(missing_ok=True)

    def launch(self) -> Process:
        if not self._in_process:
            self._order = ControlClient(self.control_path)
            return super().launch()
        from kbroker.testing.in_process import InProcess

        process = InProcess(self.command(), self.environment(), self.log_path)
        self._order = process.control
        return process

    def start(self) -> Self:
        """Returns when requests are accepted and the topics are there."""
        super().start()
        try:
            if self._trace:
                self._tell({"op": "trace", "on": True})
            if self._topics:
                self.create_topics(self._topics)
            if self._secured is not None and self._secured.acls:
                self._look().create_acls(self._secured.acls)
        except BaseException:
            self.kill9()
            raise
        return self

    def _forget(self) -> None:
        super()._forget()
        if isinstance(self._order, ControlClient):
            self._order.close()
        if self._inspection is not None:
            self._inspection.close()
        self._order = self._inspection = None
        self._has_rules = False

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _tell(self, order: dict[str, Any]) -> Any:
        self._live()
        if self._order is None:
            raise InvariantError("a broker that runs has a control connection")
        return self._order(order)

    # --- clients with users and TLS ---------------------------------------------------------------

    @property
    def authority_path(self) -> Path:
        """The certificate that clients of a broker with `tls=True` trust, in PEM."""
        return self._needs_security().authority_path

    def client_settings(
        self,
        user: str | None = None,
        *,
        mechanism: str = DEFAULT_MECHANISM,
        password: str | None = None,
    ) -> dict[str, str]:
        """Of a client of librdkafka that logs in as this user. `password`: another one than the
        user's."""
        own = {"bootstrap.servers": self.bootstrap}
        return own | self._client("librdkafka", user, mechanism, password)

    def java_settings(
        self,
        user: str | None = None,
        *,
        mechanism: str = DEFAULT_MECHANISM,
        password: str | None = None,
    ) -> dict[str, str]:
        """Of a Java client, and of the file for the option --command-config."""
        own = {"bootstrap.servers": self.bootstrap}
        return own | self._client("java", user, mechanism, password)

    def python_settings(
        self,
        user: str | None = None,
        *,
        mechanism: str = DEFAULT_MECHANISM,
        password: str | None = None,
    ) -> dict[str, Any]:
        """Of kafka-python and aiokafka."""
        own = {"bootstrap_servers": self.bootstrap}
        return own | self._client("python", user, mechanism, password)

    def client_certificate(self, name: str) -> Path:
        """A key and a certificate of a client CN=`name`, in one file of PEM, that the broker's
        authority has issued."""
        return self._needs_security().client_certificate(name)

    def _client(
        self, kind: str, user: str | None, mechanism: str, password: str | None
    ) -> dict[str, Any]:
        if self._secured is None and user is None:
            return {}
        secured = self._needs_security()
        if password is None:
            password = "" if user is None else secured.password_of(user)
        settings: dict[str, Any] = getattr(secured, kind)(user, mechanism, password)
        return settings

    def _needs_security(self) -> Secured:
        if self._secured is None:
            raise ValueError("the broker has no users and no TLS: name users, or tls=True")
        return self._secured

    # --- faults -----------------------------------------------------------------------------------

    def on(
        self,
        api: ApiKey,
        *,
        error: str | ErrorCode | None = None,
        delay_ms: float = 0,
        drop: bool = False,
        lose_answer: bool = False,
        throttle_ms: int = 0,
        times: int | None = None,
        client_id: str | None = None,
    ) -> Rule:
        """Let requests of an API fail: wait `delay_ms`, then answer with `error`, or `drop` the
        connection without an answer, or (neither) serve them.

        With `lose_answer` they are served, and the connection ends instead of the answer; not of
        Produce and Fetch, which C serves alone. With `throttle_ms`, of Produce and Fetch, they are
        served as to a client over its quota (KIP-219): the answer comes at once and names that
        time, and the connection is not read for as long. For the next `times` requests, or until
        the rule is removed; of one client id, or of all. The first rule that fits counts. A request
        that is answered with an error, or dropped, has no effect. ValueError for an error or an API
        that is not known.
        """
        if drop and error is not None:
            raise ValueError("a connection that is dropped has no answer to be an error")
        if lose_answer and (drop or error is not None or throttle_ms or api in THROTTLED):
            raise ValueError("an answer is lost of a request that Python serves, and nothing else")
        if throttle_ms and (drop or error is not None or api not in THROTTLED):
            raise ValueError("who is throttled is served; Produce and Fetch have such quotas")
        code = None if error is None else int(_error_code(error))
        self._has_rules = True
        number = self._tell(
            {
                "op": "on", "api_key": int(ApiKey(api)), "error": code, "delay_ms": delay_ms,
                "drop": drop, "lost": lose_answer, "throttle_ms": throttle_ms, "times": times,
                "client_id": client_id,
            }
        )  # fmt: skip
        return Rule(self._tell, number)

    def delay(self, api: ApiKey, *, ms: float, times: int | None = None) -> Rule:
        """Let requests of an API wait before they are served."""
        return self.on(api, delay_ms=ms, times=times)

    def clear(self) -> None:
        """Remove all rules."""
        if self._has_rules:
            self._tell({"op": "off", "number": None})
        self._has_rules = False

    def hang_files(self, path_part: str, *operations: str) -> None:
        """Operations (all, or those named: "write", "open", "sync", ...) on files of its logs whose
        paths have this in them hang from now on: a disk that does not answer."""
        self._tell({"op": "hang", "path_part": path_part, "operations": operations})

    @property
    def hung_operations(self) -> int:
        """How many hang now."""
        return int(self._tell({"op": "hung"}))

    def let_files_go(self) -> int:
        """What hangs goes on, and nothing hangs any more; how many operations did."""
        return int(self._tell({"op": "let_files_go"}))

    def hold_markers(self) -> None:
        """Transactions are decided from now on, and their markers are not written to this broker's
        partitions: consumers of committed records wait, and the producer's next transaction."""
        self._tell({"op": "hold_markers"})

    @property
    def held_markers(self) -> int:
        """How many wait."""
        return int(self._tell({"op": "held_markers"}))

    def let_markers_go(self) -> int:
        """What is held is written, and nothing is held any more; how many markers did."""
        return int(self._tell({"op": "let_markers_go"}))

    def drop_connections(self) -> int:
        """End all connections, as a restart or a network does; clients may come back at once."""
        return int(self._tell({"op": "drop_connections"}))

    def apply_retention(self) -> None:
        """Delete now the records beyond `retention.ms` and `retention.bytes`; see `clock`."""
        self._tell({"op": "apply_retention"})

    def compact(self) -> None:
        """Clean every compacted topic now, its newest records too: of each key the last one stays,
        of those older than `min.compaction.lag.ms`."""
        self._tell({"op": "compact"})

    def live_objects(self) -> dict[str, int]:
        """How many objects of the compiled core there are, by kind."""
        return dict(self._tell({"op": "live_objects"}))

    # --- inspection -------------------------------------------------------------------------------

    def requests(self, api: ApiKey | None = None) -> list[Seen]:
        """The requests of an API, or all, as they came; those of this object are left out.

        Complete with `trace=True`; without, what the compiled path serves (Produce,
        Fetch, Metadata, Heartbeat, OffsetCommit) is noted only while it has a rule.
        """
        key = None if api is None else int(api)
        return [Seen(*each) for each in self._tell({"op": "requests", "api_key": key})]

    def last_requests(self, count: int) -> list[Seen]:
        order = {"op": "requests", "api_key": None, "last": count}
        return [Seen(*each) for each in self._tell(order)]

    def _create_topics(self, topics: Mapping[str, int], configs: Mapping[str, str]) -> None:
        order = {"op": "create_topics", "topics": dict(topics), "configs": dict(configs)}
        for _, code, message in self._tell(order):
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise KafkaError(ErrorCode(code), message or "")

    def delete_topic(self, name: str) -> None:
        self._tell({"op": "delete_topics", "names": [name]})

    def _look(self) -> Inspection:
        self._live()
        if self._inspection is None:
            self._inspection = Inspection(self._inside())
        return self._inspection

    def _inside(self) -> str:
        """Where this object's own client comes in."""
        if self._secured is None:
            return self.bootstrap
        host, port = self._tell({"op": "bound"})[INSIDE][0]
        return f"{host}:{port}"


def _error_code(error: str | ErrorCode) -> ErrorCode:
    if isinstance(error, ErrorCode):
        return error
    try:
        return ErrorCode[error]
    except KeyError:
        raise ValueError(f"no such error: {error!r}; use Kafka's names") from None
