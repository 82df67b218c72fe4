"""The command line of `kbroker perf ladder`. Only click is imported before the verb runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perf.studies.options import study_options


@click.command()
@study_options
@click.option("--designs", metavar="A,B", help="some rungs, from the lowest up  [all]")
@click.option("--kafka", is_flag=True, help="Apache Kafka beside (needs Java)")
@click.option(
    "--write-page",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="put the figures into docs/ladder.md",
)
def ladder(designs: str | None, kafka: bool, write_page: Path | None, **options: Any) -> None:
    """Document 004's four server designs on the same work, rung by rung."""
    from perf.brokers.kafka import jars
    from perf.ladder import BY_NAME
    from perf.studies import ladder as study
    from perf.studies import ladder_answers as answers
    from perf.studies import ladder_page
    from perf.studies.options import StudyRun

    changes: dict[str, Any] = {"kafka": kafka}
    if designs:
        changes["designs"] = tuple(designs.split(","))
        if unknown := set(changes["designs"]) - set(BY_NAME):
            raise click.BadParameter(
                f"{', '.join(sorted(unknown))}: not a design; there are {', '.join(BY_NAME)}"
            )
    if kafka:
        jars()  # from the network, which is out of reach afterwards
    with StudyRun(study.STUDY, options) as running:
        running.own_network()
        plan = running.plan(study.Plan, changes)
        outcome = study.run(plan, running.say, running.journal, fresh=running.fresh)
        running.end(
            outcome,
            answers.table(outcome, plan),
            answers.to_json(outcome, plan),
            answers.conclusions(outcome, plan),
        )
        if write_page is not None:
            ladder_page.write(write_page, outcome, plan)
