"""Apache Kafka's answers, as recorded: one JSON file a family, a line a case.

The first line says which Apache Kafka answered, on which day, and which commit asked. Long lists
that come again and again (the configuration of a new topic) are stored once, under "shared", by a
hash of their content. The order of cases is that of their family's file, so a new recording
changes the first line, the lines whose answers changed and no others.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from lab.jars import KAFKA_VERSION

FOLDER: Final = Path(__file__).with_name("vectors")
_SHARED_CHARS_MIN: Final = 120
_REFERENCE: Final = "@"

Steps = list[Any]


@dataclass(frozen=True)
class Recording:
    """Where a family's answers come from."""

    kafka: str  # the version of Apache Kafka that answered
    date: str
    commit: str  # of the cases that asked; "and changes", which a test refuses: not committed yet

    @classmethod
    def of_now(cls) -> Self:
        changed = _git("status", "--porcelain", "--", ".", ":!vectors")
        today = datetime.now(UTC).date().isoformat()
        return cls(KAFKA_VERSION, today, f"{commit()} and changes" if changed else commit())


def commit() -> str:
    """The one that is checked out."""
    return _git("rev-parse", "--short", "HEAD")


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=FOLDER.parent, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def path_of(family: str) -> Path:
    return FOLDER / f"{family}.json"


def load(family: str) -> dict[str, Steps]:
    """The recorded steps by label; empty if the family was never recorded."""
    path = path_of(family)
    if not path.exists():
        return {}
    document = json.loads(path.read_text(encoding="utf-8"))
    shared = document["shared"]
    return {label: _expand(steps, shared) for label, steps in document["cases"].items()}


def recording_of(family: str) -> Recording:
    """KeyError where a family does not say where it comes from."""
    return Recording(**json.loads(path_of(family).read_text(encoding="utf-8"))["recorded"])


def save(family: str, cases: Mapping[str, Steps], recording: Recording) -> None:
    counts = Counter(text for steps in cases.values() for text in _long_lists(steps))
    shared = {_hash(text): text for text, times in counts.items() if times > 1}
    lines = [f"{json.dumps(name)}: {text}" for name, text in sorted(shared.items())]
    of_cases = [
        f"{json.dumps(label)}: {_text(_shorten(steps, shared))}" for label, steps in cases.items()
    ]
    FOLDER.mkdir(exist_ok=True)
    path_of(family).write_text(
        f'{{"recorded": {json.dumps(asdict(recording))},\n"shared": {{\n'
        + ",\n".join(lines)
        + '\n},\n"cases": {\n'
        + ",\n".join(of_cases)
        + "\n}}\n",
        encoding="utf-8",
    )


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _long_lists(value: Any) -> Iterator[str]:
    for child in _children(value):
        if isinstance(child, list) and len(text := _text(child)) >= _SHARED_CHARS_MIN:
            yield text
        yield from _long_lists(child)


def _shorten(value: Any, shared: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        name = _hash(_text(value))
        return {_REFERENCE: name} if name in shared else [_shorten(v, shared) for v in value]
    if isinstance(value, dict):
        return {key: _shorten(v, shared) for key, v in value.items()}
    return value


def _expand(value: Any, shared: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_expand(v, shared) for v in value]
    if isinstance(value, dict):
        if value.keys() == {_REFERENCE}:
            return shared[value[_REFERENCE]]
        return {key: _expand(v, shared) for key, v in value.items()}
    return value
