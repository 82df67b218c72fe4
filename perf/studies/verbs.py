"""The command lines of the studies: `kbroker perf latency-study`, `tune`, `pipelining` and `show`.

A study measures and keeps everything in JSON; `show` makes of that file, now or in a year, what the
study said: its tables, its part of a page of docs/, the effects for `kbroker doctor`, its records.
Only click is imported before a verb runs.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from perf.results_target import Target, results_options
from perf.studies.options import StudyRun, study_options


def _some(option: str, given: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a list with commas, each of them known and none of them twice."""
    names = tuple(given.split(","))
    if unknown := set(names) - set(known):
        raise click.BadParameter(
            f"{option}: {', '.join(sorted(unknown))}: there are {', '.join(known)}"
        )
    if len(set(names)) != len(names):
        raise click.BadParameter(f"{option} {given}: each once")
    return names


def _measure(name: str, changes: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """One study from its plan to its end."""
    from lab.jars import KAFKA, JarsMissing
    from perf.brokers import BrokerError
    from perf.studies.kinds import KINDS

    kind = KINDS[name]
    with StudyRun(name, options) as running:
        plan = running.plan(kind.plan, changes)
        if plan.with_kafka:
            try:
                KAFKA.fetch()  # from the network, which is out of reach afterwards
            except JarsMissing as error:
                raise BrokerError(f"{error}; without Apache Kafka the study runs as well") from None
        running.own_network()
        outcome = kind.run(plan, running.say, running.journal, fresh=running.fresh)
        running.end(outcome, plan, kind.report(outcome, plan))


@click.command("latency-study")
@study_options
@click.option("--brokers", default="kafka,kbroker", show_default=True, help="measured in turns")
@click.option(
    "--replicas", type=click.IntRange(1, 5), default=1, show_default=True,
    help="of the topic, each on a broker of its own",
)  # fmt: skip
def latency_study(brokers: str, replicas: int, **options: Any) -> None:
    """Document 002: is acks=0 slower end to end, is async, and where does the time come from?

    About twenty minutes, with --quick three (16 KB batches only; three rounds, which decide
    nothing). Needs librdkafka, and Java for Apache Kafka and for ZooKeeper, at which several
    kbrokers meet. docs/studies.md says what and why.
    """
    found = _some("--brokers", brokers, ("kafka", "kbroker"))
    if replicas > 1 and "kbroker" in found and (missing := _no_zookeeper()):
        raise click.UsageError(missing)
    _measure("latency-study", {"brokers": found, "replicas": replicas}, options)


@click.command()
@study_options
@click.option("--knobs", metavar="A,B", help="some of the settings  [all]")
@click.option("--kafka", is_flag=True, help="and flush.messages in Apache Kafka beside it")
def tune(knobs: str | None, kafka: bool, **options: Any) -> None:
    """What each setting that the documents name changes here.

    About thirteen minutes, with --quick four, which decide nothing. docs/tuning.md says how an
    effect is found.
    """
    from perf.studies.knobs import knobs as table

    every = table(kafka=kafka)
    chosen = tuple(one.name for one in every)
    if knobs:
        chosen = _some("--knobs", knobs, chosen)
    on_clusters = {one.name for one in every if one.brokers > 1} & set(chosen)
    missing = _no_zookeeper() if on_clusters else ""
    if missing and knobs:
        raise click.UsageError(missing)
    if missing:
        click.echo(f"left out: {', '.join(sorted(on_clusters))}: {missing}", err=True)
        chosen = tuple(name for name in chosen if name not in on_clusters)
    changes: dict[str, Any] = {"kafka": kafka}
    if knobs or missing:
        changes["names"] = chosen
    _measure("tune", changes, options)


def _no_zookeeper() -> str:
    """Why kbrokers cannot meet here; its jars come from the network, which a study leaves."""
    from lab.jars import ZOOKEEPER, JarsMissing

    if shutil.which("java") is None:
        return "kbrokers meet at a ZooKeeper, which needs java; there is none"
    try:
        ZOOKEEPER.fetch()
    except JarsMissing as error:
        return str(error)
    return ""


@click.command()
@study_options
@click.option("--systems", metavar="A,B", help="of kafka, stock, pipelined  [all]")
@click.option("--sections", metavar="A,B", help="some of the tables  [all]")
@click.option("--round-trips", metavar="US,US", help="in microseconds  [100,500,1000,5000]")
@click.option("--in-flight", metavar="N,N", help="of the first table  [1,5,200,2000]")
@click.option("--slots", metavar="N,N", help="values of channel.pipelining.max.requests to try")
@click.option("--bars", is_flag=True, help="what the bars need alone, in 21 rounds: 35 minutes")
@click.option("--check", is_flag=True, help="exit with 1 unless every measured bar passes")
def pipelining(
    systems: str | None,
    sections: str | None,
    round_trips: str | None,
    in_flight: str | None,
    slots: str | None,
    bars: bool,
    check: bool,
    **options: Any,
) -> int:
    """Document 000: what does a connection that serves one request at a time cost acks=-1?

    Two brokers a round trip apart, in network namespaces: needs root, and Java. Two hours,
    with --quick six minutes, which decide nothing. docs/pipelining.md says what and why.
    """
    from perf.pipelining import plan as plans

    if bars and options["quick"]:
        raise click.UsageError("--bars or --quick: three rounds decide no bar")
    changes: dict[str, Any] = {}
    if systems:
        changes["systems"] = _some("--systems", systems, plans.SYSTEMS)
    if sections:
        changes["sections"] = _some("--sections", sections, plans.SECTIONS)
    for name, given, most in (
        ("round_trips_us", round_trips, plans.ROUND_TRIP_US_MAX),
        ("in_flight", in_flight, plans.IN_FLIGHT_MAX),
        ("slots", slots, plans.SLOTS_MAX),
    ):
        if given:
            changes[name] = _numbers(given, most)
    return _pipelining(changes, options, check, bars_alone=bars)


def _numbers(given: str, most: int) -> tuple[int, ...]:
    """A list with commas, each from 1 on and none of them twice."""
    try:
        found = tuple(map(int, given.split(",")))
    except ValueError:
        raise click.BadParameter(f"{given}: whole numbers, with commas") from None
    if len(set(found)) != len(found) or not all(1 <= one <= most for one in found):
        raise click.BadParameter(f"{given}: from 1 to {most:,}, each once")
    return found


def _pipelining(
    changes: Mapping[str, Any], options: Mapping[str, Any], check: bool, *, bars_alone: bool
) -> int:
    from lab.jars import KAFKA, ZOOKEEPER
    from perf.pipelining.bars import bars
    from perf.pipelining.plan import took_about_s
    from perf.studies.kinds import KINDS

    kind = KINDS["pipelining"]
    with StudyRun(kind.name, options) as running:
        plan = running.plan(kind.plan.of_bars if bars_alone else kind.plan, changes)
        if plan.with_kafka:
            KAFKA.fetch()  # from the network, which is out of reach afterwards
        ZOOKEEPER.fetch()
        running.say(
            f"{len(kind.points(plan))} points, {plan.rounds} rounds: about"
            f" {took_about_s(plan) / 60:.0f} minutes on a quiet machine; a run that is cut goes on"
        )
        outcome = kind.run(plan, running.say, running.journal, fresh=running.fresh)
        running.end(outcome, plan, kind.report(outcome, plan))
    passed = not outcome.faults and all(bar.fine for bar in bars(outcome))
    return 1 if check and not passed else 0


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--markdown", is_flag=True, help="as the measured part of a page of docs/")
@click.option(
    "--write-page",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="put that part into the page",
)
@click.option("--write-effects", is_flag=True, help="of tune: for `kbroker doctor`")
@click.option(
    "--write-picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="of pipelining: its first table as an SVG",
)
@results_options
def show(
    file: Path,
    markdown: bool,
    write_page: Path | None,
    write_effects: bool,
    write_picture: Path | None,
    target: Target | None,
) -> None:
    """What a study's JSON says: tables and answers, Markdown, a page, effects, records.

    Nothing is measured. FILE is what --json wrote.
    """
    from perf.publishing import ResultsError
    from perf.results import Results
    from perf.studies import kinds, tune_answers
    from perf.studies.conclusion import publish

    kind, outcome, plan = kinds.read(file)
    report = kind.report(outcome, plan)
    if write_page is not None:
        kinds.write_page(write_page, kind, report)
        click.echo(f"written to {write_page}", err=True)
    elif not write_effects and write_picture is None:
        click.echo(report.page if markdown else "\n".join(report.text))
    if write_picture is not None:
        from perf.pipelining.picture import drawn

        if kind.name != "pipelining":
            raise click.UsageError(f"--write-picture is for pipelining; this is of {kind.name}")
        if plan.bars_alone:
            raise click.UsageError("--write-picture is of the first table, which --bars leaves out")
        write_picture.write_text(drawn(outcome, plan), encoding="utf-8")
        click.echo(f"written to {write_picture}", err=True)
    if write_effects:
        from kbroker.config.effects import default_path
        from perf.tables import json_rows

        if kind.name != "tune":
            raise click.UsageError(f"--write-effects is for tune; this is of {kind.name}")
        Path(default_path()).write_text(json_rows(tune_answers.effects_file(outcome, plan)))
        click.echo(
            f"written to {default_path()}; python -m kbroker.config.document puts it into the docs",
            err=True,
        )
    if target is not None:
        with Results(target, kind.name, lambda text: click.echo(text, err=True)) as results:
            publish(outcome, report.conclusions, results, report.figures)
        if results.failed:
            raise ResultsError("not published")
