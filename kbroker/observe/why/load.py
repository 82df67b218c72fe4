"""How busy this broker is, from the figures that the Observer has of threads, requests and disks.

Pure functions of figures by the catalogue's keys, and of the checks of readiness.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kbroker.metrics.model import Meter, Summary
from kbroker.observe.why.facts import APIS_MAX, Api, Directory, Load

if TYPE_CHECKING:
    from kbroker.metrics.model import Figures
    from kbroker.observe.readiness import Readiness

_LOG_DIR: Final = "log-dir "
_MEDIAN, _P99 = 0.5, 0.99
# Of fewer requests the 99th percentile is one request.
_PER_S_MIN: Final = 1.0
_PRODUCE: Final = "Produce"


def load_facts(figures: Figures) -> Load:
    rates = _rates(figures)
    is_written = rates.get(_PRODUCE, 0.0) >= _PER_S_MIN
    return Load(
        handlers_idle=_number(figures, "handler_idle", 1.0),
        network_idle=_number(figures, "network_idle", 1.0),
        busiest=_busiest(figures, rates),
        flush_ms=_quantile(_MEDIAN, figures, "log_flush_time"),
        append_ms=_quantile(_P99, figures, "local_time", _PRODUCE) if is_written else 0.0,
        followers_ms=_quantile(_P99, figures, "remote_time", _PRODUCE) if is_written else 0.0,
    )


def _number(figures: Figures, key: str, unknown: float) -> float:
    value = next((value for _, value in figures.samples(key)), unknown)
    return float(value) if isinstance(value, (int, float)) else unknown


def _quantile(wanted: float, figures: Figures, key: str, *labels: str) -> float:
    for found, value in figures.samples(key):
        if found == labels and isinstance(value, Summary):
            return dict(value.quantiles).get(wanted, 0.0)
    return 0.0


def _rates(figures: Figures) -> dict[str, float]:
    """Requests of each API a second, over the last minute."""
    rates: dict[str, float] = {}
    for (name, _version), value in figures.samples("requests"):
        if isinstance(value, Meter):
            rates[name] = rates.get(name, 0.0) + value.rate
    return rates


def _busiest(figures: Figures, rates: Mapping[str, float]) -> tuple[Api, ...]:
    """The APIs on which handlers have spent most of the last minute."""
    apis = [
        Api(name, rates[name], value.sum / value.total)
        for (name,), value in figures.samples("local_time")
        if isinstance(value, Summary) and value.total and rates.get(name)
    ]
    apis.sort(key=lambda each: -each.per_s * each.local_ms)
    return tuple(apis[:APIS_MAX])


def directories(readiness: Readiness, figures: Figures) -> tuple[Directory, ...]:
    """The log directories: what is wrong, and how much room there is."""
    free, total = (_bytes(figures, key) for key in ("log_dir_free", "log_dir_total"))
    return tuple(
        Directory(path, "" if each.ok else each.detail, free.get(path), total.get(path))
        for each in readiness.checks()
        if (path := each.name.removeprefix(_LOG_DIR)) != each.name
    )


def _bytes(figures: Figures, key: str) -> dict[str, int]:
    return {path: value for (path,), value in figures.samples(key) if isinstance(value, int)}


def troubles(readiness: Readiness) -> tuple[tuple[str, str], ...]:
    """What else keeps the broker from being ready."""
    return tuple(
        (each.name, each.detail)
        for each in readiness.checks()
        if not each.ok and not each.name.startswith(_LOG_DIR)
    )
