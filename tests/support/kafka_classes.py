"""Apache Kafka's classes as Java maps them: a broker is there in half the processor time.

It is beside the jars that it is made of and serves every broker, tool and client with their
class path. `make setup` makes it unless there is one that fits: some ten seconds, by a broker that
starts and stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.jars import KAFKA, Jars
from tests.support import class_archive, jars, kafka_storage, requirements

# A minute or two each, and nothing is measured: the first compiler is enough, and one collector.
SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

HEAP_OF_A_CLIENT: Final = "-Xmx256m"


def archive() -> Path:
    return KAFKA.directory / "classes.jsa"


def java_options(kafka: Jars = KAFKA) -> tuple[str, ...]:
    """For a short-lived process with the class path of these jars, or with more after it. Of an
    older Kafka there is no archive."""
    mapped = class_archive.mapped_from(archive()) if kafka is KAFKA else ()
    return (*SHORT_LIVED, *mapped)


def command(
    main: str,
    *words: str,
    kafka: Jars = KAFKA,
    classes: Path | None = None,
    heap: str = HEAP_OF_A_CLIENT,
    log: str = "error",
    options: Sequence[str] = (),
) -> list[str]:
    """Of a client, a tool or a program in a JVM of its own; a skip where it cannot run. `classes`:
    a directory of them, beside the jars of `kafka`. `log`: the lowest level of lines on stderr."""
    class_path = requirements.jars(kafka) + (f":{classes}" if classes is not None else "")
    return [
        requirements.java(), heap, *java_options(kafka), "-cp", class_path,
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log}", *options, main, *words,
    ]  # fmt: skip


def make() -> Path:
    """The archive, and what tests/support/kafka_storage.py keeps; BrokerFailed, OSError."""
    from tests.support.kafka import KafkaBroker

    wanted = archive()
    flags = (*SHORT_LIVED, "-cp", jars.class_path())
    fits = class_archive.fits(wanted, requirements.java(), *flags)
    if not fits or not kafka_storage.kept().exists():
        made = wanted.with_suffix(".new")
        made.unlink(missing_ok=True)
        broker = KafkaBroker()
        broker.formats_by_tool = True
        broker.java_options = (*SHORT_LIVED, *class_archive.written_to(made))
        with broker:
            broker.stop()
            kafka_storage.keep(broker.data_dir)
        made.rename(wanted)
    return wanted
