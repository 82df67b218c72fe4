"""The command line of `kbroker perf before-after`. Only click is imported before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perf.cluster.verbs import Run, common_options
from perf.studies.options import Seconds


def _say(text: str) -> None:
    click.echo(text, err=True)


@click.command("before-after")
@click.option(
    "--baseline",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="another checkout, built: the old build",
)
@click.option("--cells", help="keys, or requests, handlers, several; with commas  [all]")
@click.option("--rounds", type=click.IntRange(1, 1000), default=15, show_default=True)
@click.option(
    "--rounds-max",
    type=click.IntRange(1, 1000),
    default=45,
    show_default=True,
    help="of a cell that shows nothing yet",
)
@click.option("--minutes", type=click.FloatRange(0), default=0.0, help="of measuring  [no limit]")
@click.option("--seconds", type=Seconds(), default=1.6, show_default=True, help="of a block")
@common_options
def before_after(
    baseline: Path,
    cells: str | None,
    rounds: int,
    rounds_max: int,
    minutes: float,
    seconds: float,
    **common: Any,
) -> int:  # fmt: skip
    """Whether this build is slower than an older one, cell by cell.

    Both run by turns, each block twice. A line says "not slower", "slower" or "undecided"; --check
    asks that every line is "not slower". With all cells three hours, ten where many are wide. Cells
    of several brokers need Java.
    """
    from perf.before_after import several
    from perf.before_after.cells import chosen, stages
    from perf.before_after.driver import Driver, Plan, report
    from perf.brokers.kbroker import built
    from perf.machine import commit_of

    built(baseline)
    try:
        wanted = chosen(cells)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    meet = ("kbroker",) if set(wanted) & set(several.CELLS) else ()
    run = Run(**common)
    with run.measuring(meet) as root:
        driver = Driver(Plan(rounds, max(rounds, rounds_max), minutes), _say)
        outcome = driver.run(stages(wanted, root, baseline, seconds, _say))
    old = f"{baseline}, commit {commit_of(baseline) or 'unknown'}"
    return run.end(report(outcome, baseline=old, seconds=seconds))
