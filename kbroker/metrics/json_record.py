"""A record of a measuring topic as JSON: written by its table of columns, so that it can be read.

Every topic that carries measurements has a table of columns (name -> type); what a writer puts into
a record is checked against it here, so that a field no reader knows, or a number where a word is
expected, is an error where it is made and not a row in a reader's quarantine.

JSON has no infinity and no NaN. An infinite bound is the text "Infinity" (Spark's and Python's
readers of a double both take it); any other number that is not finite is left out, as is None:
a reader sees null.

Pure functions; any thread.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kbroker.metrics.samples import FieldType

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1


def encode(columns: Mapping[str, FieldType], record: Mapping[str, Any]) -> bytes:
    """UTF-8, one line. ValueError names the field that the table does not have or take."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        if name not in columns:
            raise ValueError(f"the table has no field {name!r}")
        try:
            fit = _fit(columns[name], value)
        except (TypeError, KeyError, OverflowError, ValueError) as error:
            raise ValueError(f"{name} is no {columns[name]}: {error}") from None
        if fit is not None:
            found[name] = fit
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def bucket(bound: float, count: int) -> dict[str, Any]:
    """One bucket as JSON has it: `count` values above the bucket before and up to `bound`."""
    return {"le": "Infinity" if bound == math.inf else bound, "count": count}


def strict(value: Any) -> Any:
    """Any JSON without what it does not have: infinities as text, NaN as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: strict(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [strict(one) for one in value]
    return value


def _fit(kind: FieldType, value: Any) -> Any:
    """The value as JSON takes it; None where there is nothing to say."""
    if value is None:
        return None
    if kind == "string":
        return _string(value)
    if kind == "boolean":
        if not isinstance(value, bool):
            raise TypeError(repr(value))
        return value
    if kind == "long":
        return _long(value)
    if kind == "double":
        return _double(value)
    return _buckets(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(repr(value))
    value.encode()  # a lone surrogate has no UTF-8
    return value


def _long(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(repr(value))
    if not LONG_MIN <= value <= LONG_MAX:
        raise OverflowError(f"{value} has more than 64 bits")
    return value


def _double(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(repr(value))
    number = float(value)
    return number if math.isfinite(number) else None


def _buckets(value: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of {"le": bound, "count": n}, bounds growing, counts above 0."""
    found = []
    before = -math.inf
    for one in value:
        bound, count = float(one["le"]), _long(one["count"])
        if not bound > before:
            raise ValueError(f"bound {bound} after {before}")
        if count <= 0:
            raise ValueError(f"a bucket of {count}")
        before = bound
        found.append(bucket(bound, count))
    return found
