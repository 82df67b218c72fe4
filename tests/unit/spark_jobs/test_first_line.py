"""The line of a failed query that is printed."""

from __future__ import annotations

import pytest

from spark_jobs.errors import first_line

PYTHON = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source \
perform planPartitions: Traceback (most recent call last):
  File "/x/python_streaming_source_runner.py", line 271, in main
    raise LostRecordsError(
spark_jobs.kbroker_options.LostRecordsError: lost: t-0 begins at 15, 10 to 15 is gone
 SQLSTATE: 38000
=== Streaming Query ===
Current Committed Offsets: {org.apache.spark.sql.Stream: {"t": {"0": 10}}}
"""

JAVA = """An error occurred while calling o2001.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/t.
\tat org.apache.spark.A.b(A.scala:1)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat org.apache.hadoop.C.d(C.java:2)
Caused by: java.io.IOException: No space left on device
\t... 18 more
"""


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (PYTHON, "lost: t-0 begins at 15, 10 to 15 is gone"),
        ("[STREAM_FAILED] Query x terminated with exception: no disk\n at y", "no disk"),
        (
            JAVA,
            "[TASK_WRITE_FAILED] Task failed while writing rows to file:/t.:"
            " IOException: No space left on device",
        ),
        ("\n  only this  \n", "only this"),
        ("a.b.CError: not in a traceback\nmore", "a.b.CError: not in a traceback"),
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n"
            "ModuleNotFoundError: No module named 'kbroker'\n SQLSTATE: 38000",
            "No module named 'kbroker'",
        ),
        ("x" * 1000, "x" * 297 + "..."),
    ],
)
def test_it_has_the_error(said: str, line: str) -> None:
    assert first_line(said) == line


def test_an_exception_without_words_has_its_name() -> None:
    assert first_line(KeyError()) == "KeyError"
