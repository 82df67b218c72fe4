"""The transaction coordinator: every transactional id that this broker looks after.

Place in the flow: handlers call one method per API and get an answer, at once or through a
callback. Under the lock a request is decided (`decisions.py`) and its id is marked as pending; the
write follows without the lock, and its outcome changes the id. So an id has one write at a time,
and its records are in the log in the order of the decisions.

An outcome (Prepare*) is in the log, with its followers, before its first marker is sent. Markers
are sent at once and before the answer (`outcomes.py`): a partition of this broker has its marker
when the client begins the next transaction. The id is pending from the decision on until Complete*
is in the log, so that it has one order of markers at a time.

An id that is pending is so until a callback comes. So each callback comes, also where the log or
the markers raise: that is a failed write, or markers that are sent again.

Lock: one, a leaf, around the dictionary and the ids in it. Any thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.coordinator.txn import decisions
from kbroker.coordinator.txn._ids import Transaction, TransactionalIds
from kbroker.coordinator.txn.decisions import Decision
from kbroker.coordinator.txn.expiration import Expiration
from kbroker.coordinator.txn.image import (
    LIMITS,
    NO_EPOCH,
    NO_PAIR,
    RAISES_EPOCHS,
    Limits,
    Pair,
    Partitions,
    TransactionImage,
    require_sound,
)
from kbroker.coordinator.txn.outcome_counts import OutcomeCounts
from kbroker.coordinator.txn.outcomes import Outcomes
from kbroker.coordinator.txn.seams import at_once
from kbroker.coordinator.txn.states import PREPARED, UNFINISHED, Do, State
from kbroker.coordinator.txn.timeouts import Timeouts
from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.once import once
from kbroker.outside_text import can_be_told
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.txn.seams import (
        Done,
        Generate,
        Markers,
        OnWorker,
        Settings,
        TransactionLog,
    )
    from kbroker.purgatory.timer import CallLater
    from kbroker.security.session import Session

NONE: Final = ErrorCode.NONE
# Ids that are looked at in one step of the scheduler.
_LOOKED_AT_MAX: Final = 2_000
# And where an image may be made of each.
_IMAGES_MAX: Final = 250

AnswerPair = Callable[[ErrorCode, Pair], object]
Answer = Callable[[ErrorCode], object]


class Decide(Protocol):
    def __call__(
        self,
        image: TransactionImage | None,
        *,
        pending: bool,
        fence_failed: bool,
        fresh_id: int | None,
    ) -> Decision: ...


class TransactionCoordinator:
    """See the head of this file. `level` is that of transaction.version, of all brokers."""

    def __init__(
        self,
        config: Callable[[], Settings],
        clock: Clock,
        call_later: CallLater,
        log: TransactionLog,
        markers: Markers,
        generate: Generate,
        level: Callable[[], int],
        epochs: Limits = LIMITS,
        failures: Failures | None = None,
        on_worker: OnWorker = at_once,
        ids: TransactionalIds | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = log
        self._markers = markers
        self._generate = generate
        self._level = level
        self._epochs = epochs
        self.failures: Final = failures or Failures("transactions")
        self._lock = threading.Lock()
        self._transactions = TransactionalIds() if ids is None else ids
        self._expiration = Expiration(self._transactions, self._lock, log, self.failures)
        self._timeouts = Timeouts(clock)
        self._closed = False
        self.counts: Final = OutcomeCounts(self._transactions)
        self._outcomes = Outcomes(
            self._lock,
            lambda transactional_id: self._transactions.get(transactional_id),
            log,
            self._write,
            markers,
            call_later,
            on_worker,
            lambda: self._epochs,
            self._now_ms,
            self.failures,
        )

    # --- producers --------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, pair: Pair, answer: AnswerPair
    ) -> None:
        """InitProducerId. `answer` is called once, on some thread, now or when it is in the log."""
        if not transactional_id:
            answer(ErrorCode.INVALID_REQUEST, NO_PAIR)
        elif not 0 < timeout_ms <= self._config()["transaction.max.timeout.ms"]:
            answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT, NO_PAIR)
        elif not can_be_told(transactional_id):
            answer(ErrorCode.UNKNOWN_SERVER_ERROR, NO_PAIR)
        else:
            self._step(transactional_id, partial(self._init, pair, timeout_ms), answer)

    def _init(
        self,
        pair: Pair,
        timeout_ms: int,
        image: TransactionImage | None,
        *,
        pending: bool,
        fence_failed: bool,
        fresh_id: int | None,
    ) -> Decision:
        return decisions.init(
            image, pair, timeout_ms, self._level(), self._now_ms(), pending=pending,
            fence_failed=fence_failed, fresh_id=fresh_id, limits=self._epochs,
        )  # fmt: skip

    def add_partitions(
        self,
        transactional_id: str,
        pair: Pair,
        partitions: Partitions,
        client_version: int,
        answer: Answer,
    ) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn; `client_version` 0 up to AddPartitionsToTxn 3."""

        def decide(
            image: TransactionImage | None,
            *,
            pending: bool,
            fence_failed: bool,
            fresh_id: int | None,
        ) -> Decision:
            now_ms = self._now_ms()
            return decisions.add(image, pair, partitions, client_version, now_ms, pending=pending)

        if not transactional_id:
            answer(ErrorCode.INVALID_REQUEST)
            return
        self._step(transactional_id, decide, lambda code, _: answer(code))

    def verify_partitions(
        self, transactional_id: str, pair: Pair, partitions: Iterable[TopicPartition]
    ) -> ErrorCode | Mapping[TopicPartition, ErrorCode]:
        """Whether a transaction is open in these partitions; an error of all, or one for each."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        code = self._state_of(transactional_id)
        if code:
            return code
        image = self.find(transactional_id)
        code = decisions.verify(image, pair)
        if code or image is None:
            return code
        inside = image.partitions
        abortable = ErrorCode.TRANSACTION_ABORTABLE
        return {each: NONE if each in inside else abortable for each in partitions}

    def end(
        self,
        transactional_id: str,
        pair: Pair,
        version: int,
        answer: AnswerPair,
        *,
        committed: bool,
    ) -> None:
        """EndTxn; `version` 2 from EndTxn 5 on, else 0. The answer has the pair to go on with."""

        def decide(
            image: TransactionImage | None,
            *,
            pending: bool,
            fence_failed: bool,
            fresh_id: int | None,
        ) -> Decision:
            return decisions.end(
                image, pair, version, self._now_ms(), committed=committed, pending=pending,
                fresh_id=fresh_id, limits=self._epochs,
            )  # fmt: skip

        if not transactional_id:
            answer(ErrorCode.INVALID_REQUEST, NO_PAIR)
            return
        self._outcomes.go_on(transactional_id)
        self._step(transactional_id, decide, answer)

    # --- tools ------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionImage | ErrorCode:
        """TRANSACTIONAL_ID_NOT_FOUND if there is no such id."""
        code = self._state_of(transactional_id)
        if code:
            return code
        return self.find(transactional_id) or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    @property
    def is_loading(self) -> bool:
        """Whether ids are missing in `listings` that this broker has."""
        return self._log.is_loading

    def listings(self) -> Iterator[tuple[str, TransactionImage]]:
        """All ids of this broker, of those that are loaded."""
        with self._lock:
            known = self._transactions.items()
        for transactional_id, transaction in known:
            image = transaction.image
            if image is not None:
                yield transactional_id, image

    def find(self, transactional_id: str) -> TransactionImage | None:
        with self._lock:
            transaction = self._transactions.get(transactional_id)
            return None if transaction is None else transaction.image

    def remember(self, transactional_id: str, client: Session) -> None:
        """A request of this client has succeeded."""
        with self._lock:
            transaction = self._transactions.get(transactional_id)
            if transaction is not None:
                transaction.client = client

    def client_of(self, transactional_id: str) -> Session | None:
        """None: no client has had a request answered since the id was loaded."""
        with self._lock:
            transaction = self._transactions.get(transactional_id)
            return None if transaction is None else transaction.client

    def unfinished(
        self, producer_ids: frozenset[int]
    ) -> Iterator[list[tuple[int, Partitions | None]]]:
        """Transactions of these producers that are not over, in pieces: the producer id, and the
        partitions; None: a write is under way that may add any."""
        for known in self._in_pieces(_IMAGES_MAX):
            found: list[tuple[int, Partitions | None]] = []
            with self._lock:
                for _, each in known:
                    # First this one: an id is pending until its image has what was written.
                    pending = each.pending
                    if not pending and each.state not in UNFINISHED:
                        continue
                    image = each.image
                    if image is None or image.producer_id not in producer_ids:
                        continue
                    may_add = pending and image.state not in PREPARED
                    found.append((image.producer_id, None if may_add else image.partitions))
            yield found

    @property
    def completing_again(self) -> int:
        """Ids whose Complete* could not be written, and is to be soon."""
        return self._outcomes.completing_again

    def pieces(self) -> Iterator[list[tuple[str, Transaction]]]:
        """All ids of this broker, of those that are loaded."""
        return self._in_pieces()

    def count(self, counts: Counter[State]) -> Iterator[None]:
        """Ids by state, in pieces; each state has a count."""
        counts.update({state: 0 for state in State if state >= 0})
        for known in self._in_pieces():
            counts.update(each.state for _, each in known if each.state is not None)
            yield

    # --- time -------------------------------------------------------------------------------------

    def abort_timed_out(self) -> Iterator[None]:
        """Abort what is open for longer than its timeout, an id a step."""
        for known in self._in_pieces():
            for transactional_id, transaction in known:
                if transaction.is_open:
                    time_out = partial(self._time_out, transactional_id)
                    self._step(transactional_id, time_out, _no_client)
                else:
                    self._outcomes.go_on(transactional_id)
            yield
        with self._lock:
            self._timeouts.end_round()

    def _time_out(
        self,
        transactional_id: str,
        image: TransactionImage | None,
        *,
        pending: bool,
        fence_failed: bool,
        fresh_id: int | None,
    ) -> Decision:
        if image is None or not self._timeouts.is_late(transactional_id, image):
            return Decision(Do.NOTHING)
        return decisions.time_out(
            image, self._level(), self._now_ms(), pending=pending, fence_failed=fence_failed,
            fresh_id=fresh_id, limits=self._epochs,
        )  # fmt: skip

    def expire(self) -> Iterator[None]:
        """Forget ids that were not used for long."""
        period_ms = self._config()["transactional.id.expiration.ms"]
        yield from self._expiration.expire(self._in_pieces(), self._now_ms() - period_ms)

    def _in_pieces(self, size: int = _LOOKED_AT_MAX) -> Iterator[list[tuple[str, Transaction]]]:
        with self._lock:
            known = self._transactions.items()
        for at in range(0, len(known), size):
            yield known[at : at + size]

    # --- the log and leadership -------------------------------------------------------------------

    def load(self, images: Mapping[str, TransactionImage], term: int) -> None:
        """Ids as the log has them, before their partition is active."""
        with self._lock:
            for transactional_id, image in images.items():
                transaction = Transaction(image, term)
                transaction.pending = image.state in PREPARED
                self._transactions.put(transactional_id, transaction)

    def complete_loaded(self, transactional_ids: Iterable[str], term: int) -> None:
        """Send the markers of outcomes that the load of this term has found."""
        for transactional_id in transactional_ids:
            with self._lock:
                transaction = self._transactions.get(transactional_id)
            if transaction is None or transaction.term != term:
                continue
            image = transaction.image
            if image is not None and image.state in PREPARED:
                self._outcomes.mark(transactional_id, transaction, image, may_wait=False)

    def unload(self, lost: Callable[[str], bool]) -> int:
        """Forget the ids that `lost` says yes to; how many that were."""
        with self._lock:
            gone = [name for name, _ in self._transactions.items() if lost(name)]
            for name in gone:
                self._transactions.drop(name)
        self._markers.drop(lambda order: lost(order.transactional_id))
        return len(gone)

    def close(self) -> None:
        """The broker stops."""
        self._closed = True
        self.unload(lambda transactional_id: True)

    # --- one step of an id ------------------------------------------------------------------------

    def _state_of(self, transactional_id: str) -> ErrorCode:
        if self._closed:
            return ErrorCode.NOT_COORDINATOR
        return self._log.state_of(transactional_id)

    def _now_ms(self) -> int:
        return self._clock.wall_ms()

    def _step(
        self,
        transactional_id: str,
        decide: Decide,
        answer: AnswerPair,
        fresh_id: int | None = None,
    ) -> None:
        try:
            decision, transaction = self._decide(transactional_id, decide, fresh_id)
        except Exception as error:  # a sweep has other ids, and a callback has no caller
            self.failures.note("deciding on a transactional id", error)
            decision, transaction = Decision(Do.REFUSE, ErrorCode.UNKNOWN_SERVER_ERROR), None
        if decision.needs_producer_id:
            self._ask_for_id(transactional_id, decide, answer)
        elif decision.image is None or transaction is None:
            answer(decision.code, decision.answer)
        else:
            written = partial(self._written, transactional_id, transaction, decision, answer)
            self._write(transactional_id, transaction, decision.image, written)

    def _decide(
        self, transactional_id: str, decide: Decide, fresh_id: int | None
    ) -> tuple[Decision, Transaction | None]:
        # The term comes first: in the one that is active below, nothing else may have been loaded.
        term = self._log.term_of(transactional_id)
        code = self._state_of(transactional_id)
        if code:
            return Decision(Do.REFUSE, code), None
        with self._lock:
            transaction = self._transactions.get(transactional_id)
            claimed = transaction is not None and transaction.claim()
            writes = False
            try:
                decision = decide(
                    None if transaction is None else transaction.image,
                    pending=transaction is not None and not claimed,
                    fence_failed=transaction is not None and transaction.fence_failed,
                    fresh_id=fresh_id,
                )
                if decision.image is not None:
                    require_sound(decision.image, self._epochs)
                    writes = True
            finally:
                if transaction is not None and claimed and not writes:
                    transaction.pending = False
            if decision.image is not None:
                if transaction is None:
                    transaction = Transaction(None, term)
                    transaction.pending = True
                    self._transactions.put(transactional_id, transaction)
                if _raises_at_once(decision):
                    _raise_epoch(transaction, decision.image.epoch)
        return decision, transaction

    def _ask_for_id(self, transactional_id: str, decide: Decide, answer: AnswerPair) -> None:
        thread = threading.get_ident()
        given = once(partial(self._with_id, transactional_id, decide, answer, thread))
        try:
            self._generate(given)
        except Exception as error:
            self.failures.note("asking for a producer id", error)
            given(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _with_id(
        self,
        transactional_id: str,
        decide: Decide,
        answer: AnswerPair,
        thread: int,
        fresh: int | KafkaError,
    ) -> None:
        """The id may have changed meanwhile, so the request is decided again. `thread` has asked;
        another one may be the controller's, or a loop's."""
        if isinstance(fresh, KafkaError):
            answer(fresh.code, NO_PAIR)
            return
        step = partial(self._step, transactional_id, decide, answer, fresh)
        if threading.get_ident() == thread:
            step()
        else:
            self._outcomes.on_worker(transactional_id, step)

    def _write(
        self, transactional_id: str, transaction: Transaction, image: TransactionImage, done: Done
    ) -> None:
        """`done` is called once, also where the log raises."""
        done = once(done)
        try:
            self._log.write(transactional_id, transaction.term, image, done)
        except Exception as error:
            self.failures.note("writing a transactional id", error)
            done(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _written(
        self,
        transactional_id: str,
        transaction: Transaction,
        decision: Decision,
        answer: AnswerPair,
        code: ErrorCode,
    ) -> None:
        image = decision.image
        with self._lock:
            if self._transactions.get(transactional_id) is not transaction:
                code = code or ErrorCode.NOT_COORDINATOR  # unloaded meanwhile
            elif code:
                transaction.pending = False
                transaction.fence_failed |= _raises_at_once(decision)
                if transaction.image is None:
                    self._transactions.drop(transactional_id)
            elif image is not None:
                transaction.become(image)
                transaction.pending = image.state in PREPARED
                self.counts.note(transaction, image, decision)
        try:
            if not code and image is not None and image.state in PREPARED:
                self._outcomes.mark(transactional_id, transaction, image, may_wait=True)
        finally:  # without its timer the coordinator sends no markers again
            answer(code or decision.code, NO_PAIR if code else decision.answer)


def _no_client(code: ErrorCode, pair: Pair) -> None:
    """A timeout is the coordinator's own."""


def _raises_at_once(decision: Decision) -> bool:
    """Below transaction.version 2 a fence holds from its decision on, whether it is written or
    not."""
    image = decision.image
    return decision.do is Do.FENCE and image is not None and image.client_version < RAISES_EPOCHS


def _raise_epoch(transaction: Transaction, epoch: int) -> None:
    image = transaction.image
    if image is not None:
        transaction.become(image._replace(epoch=epoch, last_epoch=NO_EPOCH))
