from collections.abc import Iterable, Sequence

Limit = tuple[str | None, str | None, Sequence[float | None]]
Figure = tuple[str, str | None, str | None, float, float, float, int, int]

class ClientQuotas:
    def __init__(
        self,
        *,
        samples: int = 11,
        sample_ms: int = 1000,
        mutation_samples: int = 11,
        mutation_sample_ms: int = 1000,
        buckets_max: int = 100000,
    ) -> None: ...
    def load(self, limits: Iterable[Limit]) -> None: ...
    @property
    def in_force(self) -> set[str]: ...
    def charge(
        self,
        user: str,
        client: str,
        *,
        kind: str | None = None,
        size: float = 0,
        percent: float = -1,
        takes_back: bool = False,
        now_ms: int | None = None,
    ) -> int: ...
    def mutate(
        self, user: str, client: str, count: float, strict: bool, now_ms: int | None = None
    ) -> tuple[bool, int]: ...
    def figures(self, most: int = 1000, now_ms: int | None = None) -> list[Figure]: ...
    def statistics(self) -> dict[str, int]: ...
