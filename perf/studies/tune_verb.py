"""The command line of `kbroker perf tune`. Only click is imported before the verb runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from perf.studies.options import study_options


@click.command()
@study_options
@click.option("--knobs", metavar="A,B", help="some of the settings  [all]")
@click.option("--kafka", is_flag=True, help="and flush.messages in Apache Kafka, beside it")
@click.option("--write-effects", is_flag=True, help="keep the effects for `kbroker doctor`")
def tune(knobs: str | None, kafka: bool, write_effects: bool, **options: Any) -> None:
    """What each setting that the documents name changes here."""
    from kbroker.config.effects import default_path
    from perf.brokers.kafka import jars
    from perf.studies import knobs as table
    from perf.studies import tune as study
    from perf.studies import tune_answers as answers
    from perf.studies.options import StudyRun

    changes: dict[str, Any] = {"kafka": kafka}
    if knobs:
        changes["names"] = tuple(knobs.split(","))
        known = [knob.name for knob in table.knobs(kafka=kafka)]
        if unknown := set(changes["names"]) - set(known):
            raise click.BadParameter(
                f"{', '.join(sorted(unknown))}: not tried; there are {', '.join(known)}"
            )
        if write_effects:
            raise click.UsageError("--write-effects needs all of the settings, not --knobs")
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
    if write_effects:
        text = json.dumps(answers.effects_file(outcome, plan), indent=1)
        Path(default_path()).write_text(text + "\n")
        running.say(
            f"written to {default_path()}; python -m kbroker.config.document puts it into the docs"
        )
