"""`kbroker perf ...`: hands its arguments to the harness in the package `perf`, unchanged.

The harness is imported here and nowhere else in kbroker. It is the second wheel,
`kbroker-perf`, which `kbroker[perf]` brings; without it the command fails with one line.
"""

from __future__ import annotations

import importlib

import click

from kbroker.errors import UserError


@click.command(
    "perf",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> int:
    """Measure: load, latency, limits, comparison."""
    return run_perf(list(words))


def run_perf(words: list[str]) -> int:
    """Runs the harness and returns its exit status."""
    try:
        harness = importlib.import_module("perf.cli")
    except ModuleNotFoundError as error:
        missing = error.name or "a module"
        unbuilt = missing != "perf" and missing.partition(".")[0] in ("kbroker", "perf")
        raise UserError(
            f"the measuring harness cannot be loaded: {missing} is missing",
            "make build, in this source tree" if unbuilt else "pip install 'kbroker[perf]'",
        ) from None
    status = harness.main(words)
    return int(status) if status is not None else 0
