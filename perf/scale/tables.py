"""The tables of docs/scale.md, from the figures that were kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from perf.cells import BY_KEY
from perf.scale.bounds import GIGABYTE, Machine, bounds
from perf.scale.measured import Figures, from_json
from perf.scale.path import Costs, Predicted, Shape, predicted

# Two cores here; there, what is sold as a server with local disks. 100 Gbit/s; 2 GB/s a disk.
LARGE: Final = Machine(cores=32, memory=200e9, network=12.5e9, disks=20e9)
PROCESSORS: Final = 3  # num.network.threads by default
# Seconds for which one thread has a lock that another core had last.
QUEUE_US: Final = 0.2
CONNECTIONS, IN_FLIGHT = 256, 5
BYTES_MATTER: Final = 10_000  # in a request
STEPS: Final = (
    ("as it is: 3 Processors, 1 handler that takes", PROCESSORS, 1),
    ("10 Processors", 10, 1),
    ("and a handler that takes for every 5", 10, 2),
    ("and for every 2", 10, 5),
    ("18 Processors, 9 that take", 18, 9),
)


def here(costs: Costs, cell: str, cpus: int) -> Predicted:
    """The cell as it is measured on few cores, with the client among them."""
    return predicted(costs, _shape(cell, cpus, "shares"))


def pinned(costs: Costs, cell: str, cpus: int) -> Predicted:
    """The client has one of the cores for itself."""
    return predicted(costs, _shape(cell, cpus - 1, "own core"))


def _shape(cell: str, cores: int, client: Literal["shares", "own core"]) -> Shape:
    found = BY_KEY[cell]
    return Shape(cores, 1, 1, found.connections, found.in_flight, client)


def large(costs: Costs, processors: int, takers: int) -> Predicted:
    shape = Shape(
        LARGE.cores, processors, takers, CONNECTIONS, IN_FLIGHT, "apart", queue_us=QUEUE_US
    )
    return predicted(costs, shape)


def drawn(data: Mapping[str, Any]) -> str:
    """All of them, as Markdown, from the figures that `python -m perf.scale` has kept."""
    found = from_json(data["cells"])
    cpus = int(data["machine"]["cpus"])
    parts = [_said(data), _costs(found, cpus), _steps(found), _in_python(data["in_python_us"])]
    return "\n\n".join(parts)


def _said(data: Mapping[str, Any]) -> str:
    machine = data["machine"]
    beside = "" if all(one["quiet"] for one in data["cells"].values()) else (
        "; something else ran beside some of them"
    )  # fmt: skip
    return (
        f"{machine['model']}, {machine['cpus']} CPUs, Linux {machine['kernel']},"
        f" {machine['when'][:10]}, commit {machine['commit']}; medians of {data['rounds']} blocks"
        f" of {data['block_s']:g} s{beside}."
    )


def _costs(found: Mapping[str, Figures], cpus: int) -> str:
    rows = [
        (
            BY_KEY[key].title,
            f"{one.processor_us:.2f}", f"{one.handler_us:.2f}", f"{one.client_us:.2f}",
            _both(one.requests_per_s, here(one.costs, key, cpus)),
            _both(one.pinned_per_s, pinned(one.costs, key, cpus)) if cpus > 1 else "-",
        )
        for key, one in found.items()
    ]  # fmt: skip
    head = ("CPU us of a request", "Processor", "handler", "client",
            "requests/s here: measured, predicted", "client on a core of its own")  # fmt: skip
    return markdown_rows(head, rows)


def _both(measured: float, by_model: Predicted) -> str:
    return f"{measured:,.0f}, {by_model.requests_per_s:,.0f}"


def _steps(found: Mapping[str, Figures]) -> str:
    rows = []
    for key, one in found.items():
        cells = [BY_KEY[key].title]
        for _, processors, takers in STEPS:
            by_threads = large(one.costs, processors, takers)
            cells.append(_in_words(by_threads, one, BY_KEY[key].kind))
        rows.append(cells)
    return markdown_rows(("requests/s", *(words for words, _, _ in STEPS)), rows)


def _in_words(by_threads: Predicted, one: Figures, kind: str) -> str:
    """The lower of two rates, that of the threads and that of the bytes, and its name."""
    lowest = bounds(LARGE, "fetch" if kind == "fetch" else "produce")[0]
    by_bytes = lowest.bytes_per_s / one.bytes_each if one.bytes_each else float("inf")
    rate, stops = min((by_threads.requests_per_s, by_threads.stops_at), (by_bytes, lowest.what))
    said = f"{_rounded(rate)}, {stops}"
    if one.bytes_each >= BYTES_MATTER:
        said += f" ({rate * one.bytes_each / GIGABYTE:.1f} GB/s)"
    return said


def _rounded(rate: float) -> str:
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:,.0f} k"


def _in_python(found: Mapping[str, float]) -> str:
    rows = [(key, f"{us:,.0f}", f"{1e6 / us:,.0f}") for key, us in found.items()]
    return markdown_rows(("request that Python serves", "CPU us", "a second at the most"), rows)


def markdown_rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)
