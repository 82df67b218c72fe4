"""The command line of `kbroker perf latency-study`. Only click is imported before the verb runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perf.studies.options import study_options

MEASURED = ("kafka", "kbroker")


@click.command("latency-study")
@study_options
@click.option("--brokers", default="kafka,kbroker", show_default=True, help="measured in turns")
@click.option(
    "--write-page",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="put the figures into docs/studies.md",
)
def latency_study(brokers: str, write_page: Path | None, **options: Any) -> None:
    """Document 002: is acks=0 slower end to end, is async, and where does the time come from?

    About twelve minutes, with --quick three (16 KB batches only). Needs librdkafka, and Java for
    Apache Kafka. docs/studies.md says what is measured and why.
    """
    chosen = tuple(brokers.split(","))
    if set(chosen) - set(MEASURED) or len(set(chosen)) != len(chosen):
        raise click.BadParameter(f"--brokers {brokers}: some of {','.join(MEASURED)}, with commas")

    from perf.studies import latency as study
    from perf.studies import latency_page
    from perf.studies import latency_text as text
    from perf.studies.answers import Study, answers
    from perf.studies.conditions import Plan, conditions
    from perf.studies.options import StudyRun

    with StudyRun(study.STUDY, options) as running:
        plan = running.plan(Plan, {"brokers": chosen})
        outcome = study.run_study(plan, running.say, running.journal, fresh=running.fresh)
        found = Study(outcome, conditions(plan), plan.brokers)
        said = answers(found)
        if write_page is not None:
            latency_page.write(write_page, found, said)
        running.end(
            outcome,
            text.to_text(found, said).splitlines(),
            text.to_json(found, said),
            said,
        )
