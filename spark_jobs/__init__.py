"""Spark's jobs: topics of measurements land in tables, tables become reports.

Each job runs by `python -m spark_jobs.NAME` and by `spark-submit spark_jobs/NAME.py`. Nothing of
the broker imports this package; it may import kbroker.metrics, perf.results_table and, for
`--source kbroker` alone, kbroker.peer. docs/reports.md is the user's page.
"""
