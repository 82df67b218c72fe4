"""The authorizer's verdicts for the hot path; see _hot_verdicts.pyx."""

from collections.abc import Hashable
from typing import TypedDict, type_check_only

from typing_extensions import disjoint_base

from kbroker._net import WrappedRequest
from kbroker.engine._hot import HotPath

@type_check_only
class _VerdictStatistics(TypedDict):
    places: int
    kept: int  # verdicts that were put in, since the start
    replaced: int  # of them, in the place of one that still held

# (place, or -1: it is not kept; the number of the denial that was there, or 0; how often it had
# denied since it was taken)
Outcome = tuple[int, int, int]

@disjoint_base
class HotVerdicts:
    """The hot path asks for rights from now on, as long as it lives; once, before the handlers
    start. It keeps four verdicts in each of the `sets`, a power of two; some 1.4 KB each.
    """

    def __new__(cls, hot: HotPath, sets: int) -> HotVerdicts: ...
    def __init__(self, hot: HotPath, sets: int) -> None: ...
    @property
    def generation(self) -> int:
        """Of the ACLs. Read it before the ACLs that decide."""

    def forget(self) -> None:
        """The ACLs have changed: what was decided before does not count any more."""

    def asked(self, request: WrappedRequest) -> list[tuple[int, int, str]]:
        """(operation, type of resource, name) of the rights that Python is to decide.

        A name that is not UTF-8 has replacement characters.
        """

    def decided(
        self, request: WrappedRequest, generation: int, numbers: list[int | None]
    ) -> list[Outcome]:
        """The verdicts on `asked`, in its order: None allows; a number denies, and is that of the
        denial; 0: it is not counted. The request is queued once more, and is out of Python's hands.
        """

    def allow(
        self,
        principal: Hashable,
        host: str,
        generation: int,
        operation: int,
        type_: int,
        name: str,
    ) -> Outcome:
        """What Python has decided for a request of its own. `host`: an address as the connection
        has it."""

    def take_denials(self, place: int, number: int) -> int:
        """How often this denial has denied since it was taken last; -1: it is not there any more.

        `place` is one that `decided` has returned.
        """

    def statistics(self) -> _VerdictStatistics: ...
