"""The transactional ids of a broker, in memory; see _ids.pyx.

Any thread. What decides on an id and what follows from that is between `claim` and the end of
`pending`; C does not touch an id that is pending.
"""

from typing import Final

from typing_extensions import disjoint_base

from kbroker.coordinator.txn.image import TransactionImage
from kbroker.coordinator.txn.seams import MarkerOrder
from kbroker.coordinator.txn.states import State
from kbroker.security.session import Session

ENTRY_BYTES: Final[int]  # of an idle id, beside its `Transaction` and its name

@disjoint_base
class Transaction:
    """One transactional id: an image, and what is under way, a write or markers.

    No image: the first record is being written. `term`: for which it may write to its partition;
    see `ShardTable.term`.
    """

    order: MarkerOrder | None  # of markers that are being written
    pending: bool  # a write of it is under way, or markers
    fence_failed: bool
    client: Session | None  # in no record, so unknown after a load; shared by its ids

    def __new__(cls, image: TransactionImage | None, term: int) -> Transaction: ...
    @property
    def term(self) -> int: ...
    def claim(self) -> bool:
        """It is pending from now on. False: it was already, for another caller."""

    def become(self, image: TransactionImage) -> None:
        """The image is in the log."""

    @property
    def image(self) -> TransactionImage | None:
        """As it is in the log, for all that this broker knows."""

    def take_left(self) -> bool:
        """Whether C has written an outcome and has left its markers to Python; once."""

    @property
    def state(self) -> State | None:
        """None: the first record is being written."""

    @property
    def is_open(self) -> bool: ...
    @property
    def aborts(self) -> tuple[int, int]:
        """Aborted transactions since the id was loaded, and those of them that timed out."""

    def count_abort(self, timed_out: bool) -> None:
        """C counts those that it aborts."""

    def unused_since(self, before_ms: int) -> bool: ...

@disjoint_base
class TransactionalIds:
    """Those of one broker, by name. C finds a `Transaction` while it is in here."""

    def __new__(cls) -> TransactionalIds: ...
    def __len__(self) -> int: ...
    @property
    def ended(self) -> tuple[int, int]:
        """Transactions that handlers without Python have committed, and aborted."""

    def get(self, name: str) -> Transaction | None: ...
    def items(self) -> list[tuple[str, Transaction]]: ...
    def put(self, name: str, transaction: Transaction) -> None:
        """In the place of the one that has this name."""

    def drop(self, name: str) -> None: ...
