"""The archive that a cluster's executors get: `python -m spark_jobs.package OUT.zip`.

    spark-submit --py-files OUT.zip --jars "$(python -m spark_jobs.connector)" spark_jobs/stream.py

It holds the jobs and the pure tables that they read from kbroker and perf, nothing compiled, so it
fits any Python that runs the workers. Where kbroker is installed there as well (`--source kbroker`
needs that), the archive does not hide it: the packages `kbroker` and `perf` inside look for their
other modules along the path.

The same sources make the same bytes. The file appears whole or not at all.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kbroker.errors import UserError

# Modules and whole packages, without compiled parts and without imports outside of this list.
CONTENTS: Final = (
    "spark_jobs", "kbroker.errors", "kbroker.metrics", "perf.results_table", "perf.stats",
    "perf.judge",
)  # fmt: skip
SUFFIXES: Final = (".py", ".j2")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # as early as a zip can say
_EXTENDED: Final = """
# The rest of the package is found along the path.
from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
"""


def files() -> dict[str, bytes]:
    """Path inside the archive -> content, in order."""
    found: dict[str, bytes] = {}
    for name in CONTENTS:
        path = _place(name)
        inside = name.replace(".", "/")
        if path.is_dir():
            found.update({f"{inside}/{below}": data for below, data in _below(path)})
        else:
            found[f"{inside}.py"] = path.read_bytes()
    for parent in {name.partition(".")[0] for name in CONTENTS if "." in name}:
        opening = (_place(parent) / "__init__.py").read_bytes()
        found[f"{parent}/__init__.py"] = opening + _EXTENDED.encode()
    return dict(sorted(found.items()))


def _place(name: str) -> Path:
    """The file of a module, the directory of a package."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.origin or not os.path.exists(spec.origin):
        raise UserError(
            f"{name} is not here as a file", "run it in the source tree or where it is installed"
        )
    path = Path(spec.origin)
    return path.parent if path.name == "__init__.py" else path


def _below(directory: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(directory.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file():
            yield path.relative_to(directory).as_posix(), path.read_bytes()


def write(out: Path) -> int:
    """The number of files. OSError as it comes."""
    content = files()
    beside = out.with_name(f"{out.name}.{os.getpid()}.new")
    try:
        with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in content.items():
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, data)
        beside.replace(out)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    return len(content)


def main(arguments: list[str]) -> int:
    """0, or 1 with one line on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.package", description="Write the archive for --py-files."
    )
    parser.add_argument("out", type=Path, metavar="OUT.zip")
    out: Path = parser.parse_args(arguments).out
    try:
        count = write(out)
    except UserError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {out}: {error.strerror}; name a file that can be written", file=sys.stderr)
        return 1
    print(f"{out}: {count} files, {out.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
