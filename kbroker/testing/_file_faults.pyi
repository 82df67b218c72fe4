from collections.abc import Sequence

OPERATIONS: tuple[str, ...]

def install() -> None: ...
def remove() -> None: ...
def add_rule(
    operations: Sequence[str],
    path_part: str,
    skip: int,
    times: int,
    error: int,
    bytes_max: int,
    delay_us: int,
) -> None: ...
def ask(operation: str, path: str) -> int | None: ...
def noted() -> list[tuple[str, str, bool, int]]: ...
