"""What the verbs of all studies share: their options, and how each of them ends.

A study ends with its table on standard output, `--json FILE`, and its blocks and conclusions in the
topic of results (`--results-bootstrap`). Only after all of that is its journal removed, so that an
error on the way costs no measurement: the same command finds every block again.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perf.results_target import results_options

if TYPE_CHECKING:
    from perf.results import Results
    from perf.studies.report import Report
    from perf.studies.study import Outcome

Function = Callable[..., Any]


class Seconds(click.FloatRange):
    """How long to measure; nan, which no range refuses, is none."""

    def __init__(self) -> None:
        super().__init__(0.05, 600)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail("nan is no number of seconds", param, ctx)
        return found


_OPTIONS = (
    click.option("--quick", is_flag=True, help="a look: three rounds, which decide nothing"),
    click.option("--rounds", type=click.IntRange(1, 1000), help="blocks of each point; six decide"),
    click.option("--seconds", type=Seconds(), help="of a block"),
    click.option(
        "--directory", type=click.Path(file_okay=False, path_type=Path), help="for data  [/tmp]"
    ),
    click.option("--json", "json_to", metavar="FILE", help="also as JSON; - for standard output"),
    results_options,
    click.option("--fresh", is_flag=True, help="forget what a run that was cut has measured"),
)


def study_options(function: Function) -> Function:
    """The options of every study."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def journals() -> Path:
    """Where the journals of all studies are."""
    from lab.jars import cache_directory

    return cache_directory() / "studies"


class StudyRun:
    """One run of a study's verb. Use as a context manager around the measuring."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._name = name
        self._options = options
        self._exit = ExitStack()
        self._results: Results | None = None
        self.journal = journals()
        self.fresh = bool(options["fresh"])

    def say(self, text: str) -> None:
        click.echo(text, err=True)

    def plan(self, kind: Any, changes: Mapping[str, Any]) -> Any:
        """A Plan of this kind: as quick as asked for, with the options that were given."""
        given = {
            name: self._options[name]
            for name in ("rounds", "seconds", "directory")
            if self._options[name] is not None
        }
        if "directory" in given:
            given["directory"].mkdir(parents=True, exist_ok=True)
        made = kind.quick if self._options["quick"] else kind
        return made(**given, **changes)

    def own_network(self) -> None:
        """Measure on a loopback without other traffic and without pacing (perf/network.py)."""
        from perf import network

        self.say(f"network: {network.enter()}")

    def __enter__(self) -> StudyRun:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # cut as by Ctrl-C
        target = self._options["target"]
        if target is not None:
            from perf.results import Results

            # Before measuring begins: its sender stays in this network (perf/results.py).
            self._results = self._exit.enter_context(Results(target, self._name, self.say))
        return self

    def end(self, outcome: Outcome, plan: Any, report: Report) -> None:
        """Print, write, publish; then the journal goes."""
        from perf.studies.conclusion import publish
        from perf.studies.kinds import plan_json
        from perf.studies.study import finish

        for line in report.text:
            click.echo(line)
        for fault in outcome.faults:
            click.echo(f"VOID {fault}")
        click.echo(
            f"{sum(map(len, outcome.blocks.values()))} blocks in {outcome.took_s:.0f} s, "
            f"{outcome.noisy} of them noisy, on {outcome.machine['cpus']} CPUs, "
            f"{outcome.machine['model']}"
        )
        if where := self._options["json_to"]:
            text = json.dumps({**report.json, "plan": plan_json(plan)})
            if where == "-":
                click.echo(text)
            else:
                Path(where).write_text(text + "\n")
                self.say(f"written to {where}")
        if self._results is not None:
            publish(outcome, report.conclusions, self._results, report.figures)
            if not self._results.publish() and not self._results.failed:
                self.say("the study's journal stays: the same command publishes again")
                return
        finish(outcome)

    def __exit__(self, *_: object) -> None:
        self._exit.close()
