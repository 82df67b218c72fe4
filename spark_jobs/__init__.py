"""The data pipeline on Spark: topics become tables, tables become reports.

Every job runs by `python -m spark_jobs.NAME` and by `spark-submit spark_jobs/NAME.py`. Nothing of
the broker imports this package.
"""
