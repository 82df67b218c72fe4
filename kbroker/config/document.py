"""Writes docs/configuration.md and docs/defaults.md from the table.

    python -m kbroker.config.document [DIRECTORY]

A test compares the committed files with this module's output, so the documentation cannot
drift from the table. Output depends on the table alone: not on the machine, not on the time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from kbroker.config.definition import (
    BROKER_KEYS,
    READ_AT_START,
    REMOVED_KEYS,
    RENAMED_KEYS,
    THEMES,
    TOPIC_KEYS,
)
from kbroker.config.documents import BROKER_VALUES, CLIENT_VALUES, TITLES
from kbroker.config.effects import load
from kbroker.config.key import SAME, ConfigKey, allowed_values, format_value
from kbroker.config.keys_topic import SYNONYMS

_NOTICE = "<!-- Written by `python -m kbroker.config.document`; edit the table, not this file. -->"

_HOW = """\
A setting comes from the strongest of: `--override key=value`, the environment, the file given to
`kbroker start`, the default. The environment follows the rule of Apache Kafka's image, for both
prefixes: `KBROKER_NUM_IO_THREADS` (or `KAFKA_NUM_IO_THREADS`) is `num.io.threads`; `__` means `_`
and `___` for `-`. `kbroker config explain KEY` shows where a value comes from.

An unknown key is a warning with the most similar name; a value outside its range ends the start
with exit status 3. Keys marked *no effect yet* are known, checked and reported, and one warning
names those that are set.

In the column *change*, `cluster-wide` and `per-broker` are the keys that can be changed while a
broker runs, for one broker or (cluster-wide) for all of them: `kbroker config set`, or Apache
Kafka's `kafka-configs`. What is set so is stronger than everything above, one broker's value
stronger than that of all, takes effect before the answer comes and survives a restart. A key
without effect yet is stored and returned all the same, and the broker's log says that it has none.
Apache Kafka also opens and closes listeners at run time; here they are read at start. Thread pools
grow to at most double and shrink to at least half in one step.\
"""


def configuration_page() -> str:
    """docs/configuration.md."""
    lines = [_NOTICE, "# Configuration", "", _HOW, ""]
    for title, keys in THEMES:
        lines += [f"## {title}", ""]
        lines += _key_table(key for key in keys if not key.internal)
    lines += ["## Topics", ""]
    lines += [
        "A topic's own value wins over the broker keys in the last column, the finest that is set"
        " first.",
        "",
    ]
    lines += _topic_table()
    lines += ["## Keys of older releases", ""]
    lines += ["They are reported at start and have no effect.", ""]
    lines += ["| key | instead |", "|---|---|"]
    renamed = {name: f"read as {new}" for name, new in RENAMED_KEYS.items()}
    lines += [f"| `{name}` | {now} |" for name, now in sorted({**REMOVED_KEYS, **renamed}.items())]
    return "\n".join(lines) + "\n"


def _key_table(keys: Iterable[ConfigKey]) -> list[str]:
    lines = ["| key | type | default | allowed | change | meaning |", "|---|---|---|---|---|---|"]
    for key in sorted(keys, key=_name):
        cells = [
            f"`{key.name}`",
            key.type.name.lower(),
            _default(key),
            _cell(allowed_values(key)),
            "read-only" if key.name in READ_AT_START else key.dynamic.value,
            _meaning(key),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _topic_table() -> list[str]:
    lines = [
        "| key | type | default | allowed | meaning | broker keys |",
        "|---|---|---|---|---|---|",
    ]
    for key in sorted(TOPIC_KEYS.values(), key=_name):
        synonyms = [f"`{synonym.broker_key}`" for synonym in SYNONYMS.get(key.name, ())]
        cells = [
            f"`{key.name}`",
            key.type.name.lower(),
            _default(key),
            _cell(allowed_values(key)),
            _meaning(key),
            ", ".join(synonyms) or "none",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _meaning(key: ConfigKey) -> str:
    return _cell(key.help) + ("" if key.supported else " *No effect yet.*")


def _default(key: ConfigKey) -> str:
    """Our default, and Apache Kafka's where it is another."""
    ours = key.default_words or _shown(format_value(key, key.default))
    if key.kafka is SAME:
        return ours
    if key.own:
        return f"{ours} (kbroker's own key)"
    return f"{ours} (Apache Kafka: {_shown(key.kafka)})"


def _shown(text: str | None) -> str:
    if text is None:
        return "unset"
    return f"`{_cell(text)}`" if text else "empty"


def _name(key: ConfigKey) -> str:
    return key.name


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def defaults_page() -> str:
    """docs/defaults.md."""
    lines = [_NOTICE, "# Defaults: the documents, kbroker, Apache Kafka 4.3", ""]
    lines += [
        "kbroker's defaults are those of Apache Kafka 4.3. The documents that describe the system",
        "are older; an experiment that repeats one of them sets that document's value itself.",
        "",
    ]
    lines += [f"- {number}: {title}" for number, title in TITLES.items()]
    lines += ["", "## Broker settings that the documents name", ""]
    lines += ["| document | key | the document | kbroker | Apache Kafka 4.3 | note |"]
    lines += ["|---|---|---|---|---|---|"]
    for row in BROKER_VALUES:
        key = BROKER_KEYS[row.key]
        ours = key.default_words or _shown(format_value(key, key.default))
        cells = [row.document, f"`{row.key}`", row.says, ours, _kafka(key), row.note]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Client settings that the documents name", ""]
    lines += ["They belong to the client, whatever the broker; listed for the experiments.", ""]
    lines += ["| document | key | the document | Apache Kafka 4.3 clients | note |"]
    lines += ["|---|---|---|---|---|"]
    for row in CLIENT_VALUES:
        cells = [row.document, f"`{row.key}`", row.says, _shown(row.kafka), row.note]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Where kbroker's default is not Apache Kafka's", ""]
    lines += ["| key | kbroker | Apache Kafka 4.3 |", "|---|---|---|"]
    for key in sorted(BROKER_KEYS.values(), key=_name):
        if key.kafka is not SAME and not key.own and not key.internal:
            ours = key.default_words or _shown(format_value(key, key.default))
            lines.append(f"| `{key.name}` | {ours} | {_kafka(key)} |")
    lines += _effects()
    return "\n".join(lines) + "\n"


def _effects() -> list[str]:
    """What was measured of the settings, if anything was."""
    measured = load()
    if measured is None:
        return []
    lines = ["", "## Effects as measured", ""]
    lines += [
        "Written by `kbroker perf show FILE --write-effects`: one setting changed at a time, each",
        f"value against the default. {measured.date}, {measured.machine}; other machines differ.",
        "On loopback: [tuning.md](tuning.md) says what of it is not the broker's.",
        "",
        "| setting | value | instead of | effect |",
        "|---|---|---|---|",
    ]
    for knob in measured.knobs:
        if knob.why_not:
            lines.append(f"| `{knob.name}` | | | {knob.why_not} |")
        for one in knob.tried:
            advised = " (the document's)" if one.value == knob.document else ""
            lines.append(
                f"| `{knob.name}` | {one.value}{advised} | {knob.default} | {_cell(one.words)} |"
            )
    return lines


def _kafka(key: ConfigKey) -> str:
    if key.own:
        return "has no such key"
    return _shown(format_value(key, key.default) if key.kafka is SAME else key.kafka)


def pages() -> dict[str, str]:
    """Every generated page by file name."""
    return {"configuration.md": configuration_page(), "defaults.md": defaults_page()}


def main(arguments: list[str]) -> int:
    directory = Path(arguments[0]) if arguments else Path(__file__).parents[2] / "docs"
    for name, text in pages().items():
        (directory / name).write_text(text, encoding="utf-8")
        print(directory / name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
