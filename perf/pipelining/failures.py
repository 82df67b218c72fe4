"""What makes one block void, and nothing else: a broker, a connection, a file that is not as it
has to be. The study goes on; what ends it is its own affair (perf/studies/study.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from perf._load import LoadError
from perf.brokers.base import BrokerError
from perf.cells import CellError
from perf.client import ClientError
from perf.wire import WireError

BREAKS: Final = (LoadError, ClientError, BrokerError, WireError, OSError)


@contextmanager
def void_on_failure(what: str) -> Iterator[None]:
    """CellError of a block, `what`, in which anything of it broke."""
    try:
        yield
    except BREAKS as error:
        raise CellError(f"{what}: {str(error) or type(error).__name__}") from error
