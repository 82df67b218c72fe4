"""Run a Spark job written in Python and note where its time went.

    python -m perf.spark_probe FIGURES.json MODULE [ARGUMENTS...]

The module runs as `python -m MODULE ARGUMENTS` would, in this process; the job needs to know
nothing of it. When its session is about to stop, these are read out of the driver's JVM, which
under a local master runs the tasks as well, and written to FIGURES.json:

- `session_s`, `stream_s`: from the beginning to the first query, and from there to the end;
- `task_s`: the time of all tasks together, as Spark's own status store sums it;
- `wait_s`: how much of it the consumers' selectors waited for bytes of the broker (the metric
  io-wait-time-ns-total of every consumer: poll() runs in the task's own thread);
- `records`, `fetches`: what the consumers handed over, and in how many requests. Fewer records than
  were landed mean that a consumer was given up meanwhile, and its figures with it;
- `poll_s`, `poll_records`: how long tasks were inside the connector's fetch (waiting, reading the
  socket, checking CRCs, building records, asking how far the partition goes), as the connector logs
  it for each task. The probe has that line written to FIGURES.json.log, whatever the job logs;
- `cpu_s`: processor time of driver and tasks.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

CONNECTOR_LOGGER: Final = "org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer"
_POLLS: Final = re.compile(
    r"read (\d+) records through (\d+) polls \(polled out \d+ records\), taking ([\d.]+) (ms|nanos)"
)
_CONSUMER: Final = "kafka.consumer:type=consumer-metrics,*"
_FETCHER: Final = "kafka.consumer:type=consumer-fetch-manager-metrics,*"
_OF_ALL: Final = frozenset({"type", "client-id"})  # without those of single topics and partitions


class Polls(NamedTuple):
    """What the connector's lines say together."""

    records: int
    polls: int
    seconds: float


def polls(log: str) -> Polls:
    """Sums the connector's lines of all tasks."""
    records = count = 0
    seconds = 0.0
    for line in _POLLS.finditer(log):
        records += int(line.group(1))
        count += int(line.group(2))
        seconds += float(line.group(3)) / (1e3 if line.group(4) == "ms" else 1e9)
    return Polls(records, count, seconds)


class Beans:
    """The management beans of a JVM, by py4j.

    Their classes are not public, so a method is called by the interface that declares it.
    """

    def __init__(self, gateway: Any) -> None:
        jvm = gateway.jvm
        self._gateway, self._class = gateway, jvm.java.lang.Class
        self._interface = self._class.forName("javax.management.MBeanServer")
        self._server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        self._name = jvm.javax.management.ObjectName

    def _call(self, method: str, types: tuple[str, ...], *values: Any) -> Any:
        jvm = self._gateway.jvm
        kinds = self._gateway.new_array(jvm.java.lang.Class, len(types))
        arguments = self._gateway.new_array(jvm.java.lang.Object, len(types))
        for index, (kind, value) in enumerate(zip(types, values, strict=True)):
            kinds[index] = self._class.forName(kind)
            arguments[index] = value
        return self._interface.getMethod(method, kinds).invoke(self._server, arguments)

    def attribute(self, name: Any, attribute: str) -> float:
        types = ("javax.management.ObjectName", "java.lang.String")
        return float(self._call("getAttribute", types, name, attribute))

    def sum(self, pattern: str, attribute: str) -> float:
        """Over all beans of a pattern whose names have only a type and a client."""
        types = ("javax.management.ObjectName", "javax.management.QueryExp")
        found = self._call("queryNames", types, self._name(pattern), None)
        return sum(
            self.attribute(name, attribute)
            for name in found
            if set(name.getKeyPropertyList()) <= _OF_ALL
        )

    def cpu_s(self) -> float:
        name = self._name("java.lang:type=OperatingSystem")
        return self.attribute(name, "ProcessCpuTime") / 1e9


class Probe:
    """Hooks into the first query's start and the session's stop."""

    def __init__(self, to: Path) -> None:
        self._to = to
        self._log = to.with_name(f"{to.name}.log")
        self._began = time.monotonic()
        self._first_query: float | None = None

    def install(self) -> None:
        from pyspark.sql import SparkSession
        from pyspark.sql.streaming.readwriter import DataStreamWriter

        start: Callable[..., Any] = DataStreamWriter.start
        stop: Callable[..., None] = SparkSession.stop
        probe = self

        def started(writer: Any, *arguments: Any, **options: Any) -> Any:
            probe.query_starts(SparkSession.active())
            return start(writer, *arguments, **options)

        def stopped(session: Any) -> None:
            probe.session_stops(session)
            stop(session)

        DataStreamWriter.start = started  # type: ignore[method-assign,assignment]
        SparkSession.stop = stopped  # type: ignore[method-assign,assignment]

    def query_starts(self, session: Any) -> None:
        if self._first_query is None:
            self._first_query = time.monotonic()
            self._listen(session.sparkContext._jvm.org.apache.logging.log4j)

    def _listen(self, log4j: Any) -> None:
        """The connector's lines into a file of our own, beside what the job does with its log."""
        context = log4j.LogManager.getContext(False)
        settings = context.getConfiguration()
        made = log4j.core.appender.FileAppender.newBuilder()
        made.setName("spark-probe")
        made.withFileName(str(self._log))
        made.setLayout(log4j.core.layout.PatternLayout.createDefaultLayout())
        made.setConfiguration(settings)
        appender = made.build()
        appender.start()
        log4j.core.config.Configurator.setLevel(CONNECTOR_LOGGER, log4j.Level.INFO)
        logger = settings.getLoggerConfig(CONNECTOR_LOGGER)
        logger.addAppender(appender, log4j.Level.INFO, None)
        context.updateLoggers()

    def session_stops(self, session: Any) -> None:
        ended = time.monotonic()
        first = self._first_query if self._first_query is not None else ended
        context = session.sparkContext
        beans = Beans(context._gateway)
        driver = context._jsc.sc().statusStore().executorSummary("driver")
        read = polls(self._log.read_text(errors="replace") if self._log.exists() else "")
        figures = {
            "session_s": first - self._began,
            "stream_s": ended - first,
            "task_s": driver.totalDuration() / 1e3,
            "tasks": driver.totalTasks(),
            "wait_s": beans.sum(_CONSUMER, "io-wait-time-ns-total") / 1e9,
            "records": int(beans.sum(_FETCHER, "records-consumed-total")),
            "fetches": int(beans.sum(_FETCHER, "fetch-total")),
            "poll_s": read.seconds,
            "poll_records": read.records,
            "cpu_s": beans.cpu_s() + time.process_time(),
        }
        self._to.write_text(json.dumps(figures) + "\n")


def main(arguments: list[str]) -> None:
    if len(arguments) < 2:
        sys.exit("usage: python -m perf.spark_probe FIGURES.json MODULE [ARGUMENTS...]")
    figures, module = Path(arguments[0]).absolute(), arguments[1]
    Probe(figures).install()
    sys.argv = [module, *arguments[2:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
