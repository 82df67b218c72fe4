from typing import Self

from typing_extensions import disjoint_base

from kbroker.net._listener_transport import ListenerTransport

# Lengths of records that are no data, and how many zeros an UPDATE brings.
UPDATE: int
ACK: int
UPDATE_BYTES: int

@disjoint_base
class MaskedTransport(ListenerTransport):
    def __new__(
        cls,
        record_bytes: int = 1000,
        move_bytes: int = 700,
        acks_every: int = 0,
        says_late: bool = False,
        opens: bool = True,
        final_bytes: int = 1,
    ) -> Self: ...
    def hold(self, steps: int) -> None: ...
    @property
    def steps(self) -> int: ...
    @property
    def steps_at_receive(self) -> int: ...
    # Connections, sends that waited for an ACK, receives, and sends that were given other bytes
    # than before.
    @property
    def opened(self) -> int: ...
    @property
    def closed(self) -> int: ...
    @property
    def starved(self) -> int: ...
    @property
    def receives(self) -> int: ...
    @property
    def changed(self) -> int: ...
