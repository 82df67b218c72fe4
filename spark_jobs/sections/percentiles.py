"""Percentiles from histograms that were merged, never from percentiles that were averaged.

A histogram is a column array<struct<le, count>>: how many values lie in the bucket whose largest
value is `le`, not cumulative. Histograms of one kind have the same bounds, so merging them is
adding counts. A percentile is the bucket in which the value of that rank lies (the rank that
perf.histogram takes), so `p99` of a merge is what one histogram of all values would say.

`merged` reads its input once, whatever the number of percentiles: each row's buckets are spread,
the counts added before the shuffle, and each group's percentiles all come from one sorted array.
`of_row` gives them for every row by itself, without a shuffle. Values that no histogram has (a
count below 1, a bound that is no number) do not count: records are anybody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PERCENTS: Final = (50.0, 95.0, 99.0, 99.9)
SUB_BITS: Final = 7  # of perf.histogram: above 128, 128 buckets to a power of two
LE_MAX: Final = float(1 << 62)
COUNT_MAX: Final = 1 << 53  # of values in a bucket; above, a double is not exact


def name_of(percent: float) -> str:
    """p50, p99, p99_9."""
    return f"p{percent:g}".replace(".", "_")


def merged(
    frame: DataFrame,
    by: Sequence[str],
    percents: Sequence[float] = PERCENTS,
    *,
    ends: tuple[str, str] | None = None,
) -> DataFrame:
    """One row for each group: `blocks` (rows merged), `total` (values), a column per percentile.

    `frame` has `buckets`; a percentile is its bucket's `le`, null where there are no values. With
    `ends`, columns of each row's smallest and largest value, the group's are `least` and `most`.
    """
    kept = [F.col(name) for name in ends or ()]
    # Each row brings one more element, without a bound: so rows are counted in the same pass.
    marked = F.concat(
        F.coalesce(_sane(F.col("buckets")), F.array()),
        F.array(
            F.struct(F.lit(None).cast("double").alias("le"), F.lit(1).cast("long").alias("count"))
        ),
    )
    spread = frame.select(*by, *kept, F.explode(marked).alias("bucket"))
    least_most = (
        [] if ends is None else [F.min(ends[0]).alias("least"), F.max(ends[1]).alias("most")]
    )
    added = spread.groupBy(*by, F.col("bucket.le").alias("le")).agg(
        F.sum(F.col("bucket.count").cast("double")).alias("n"), *least_most
    )
    real = F.col("le").isNotNull()
    again = [] if ends is None else [F.min("least").alias("least"), F.max("most").alias("most")]
    grouped = added.groupBy(*by).agg(
        *again,
        F.sum(F.when(~real, F.col("n")).otherwise(0.0)).cast("long").alias("blocks"),
        F.sum(F.when(real, F.col("n")).otherwise(0.0)).alias("total"),
        F.array_sort(F.collect_list(F.when(real, F.struct("le", "n")))).alias("sorted"),
    )
    found = [
        _at(F.col("sorted"), F.col("total"), percent).alias(name_of(percent))
        for percent in percents
    ]
    names = [] if ends is None else ["least", "most"]
    return grouped.select(*by, *names, "blocks", "total", *found)


def of_row(buckets: str, percents: Sequence[float] = PERCENTS) -> list[Column]:
    """The percentiles of each row's own histogram, as columns."""
    pairs = F.array_sort(
        F.transform(
            _sane(F.col(buckets)),
            lambda b: F.struct(b["le"].alias("le"), b["count"].cast("double").alias("n")),
        )
    )
    total = F.aggregate(pairs, F.lit(0.0), lambda sum_, pair: sum_ + pair["n"])
    return [_at(pairs, total, percent).alias(name_of(percent)) for percent in percents]


def middle(le: Column, least: Column | None = None, most: Column | None = None) -> Column:
    """What stands for all values of perf.histogram's bucket with the largest value `le`.

    As perf.histogram has it: the bucket's middle, kept between the smallest and largest value.
    """
    bits = F.length(F.bin(F.least(F.greatest(le, F.lit(1.0)), F.lit(LE_MAX)).cast("long")))
    shift = F.greatest(bits - 1 - SUB_BITS, F.lit(0))
    found = le - (F.pow(F.lit(2.0), shift) - 1) / 2
    if least is not None:
        found = F.greatest(found, least.cast("double"))
    if most is not None:
        found = F.least(found, most.cast("double"))
    return F.when(le.isNull(), None).otherwise(found)


def _sane(buckets: Column) -> Column:
    """Those with a bound and a count that can be."""
    return F.filter(
        buckets,
        lambda b: (
            b["le"].isNotNull() & ~F.isnan(b["le"]) & (b["count"] > 0) & (b["count"] < COUNT_MAX)
        ),
    )


def _at(pairs: Column, total: Column, percent: float) -> Column:
    """The bound of the bucket that holds the value of this rank."""
    rank = F.greatest(F.ceil(F.lit(percent / 100) * total).cast("double"), F.lit(1.0))
    # The rank goes along in what is added up: in the step it would be worked out for every bucket.
    start = F.struct(
        F.lit(0.0).alias("n"), F.lit(None).cast("double").alias("le"), rank.alias("rank")
    )

    def step(so_far: Column, pair: Column) -> Column:
        there = so_far["n"] >= so_far["rank"]
        return F.struct(
            F.when(there, so_far["n"]).otherwise(so_far["n"] + pair["n"]).alias("n"),
            F.when(there, so_far["le"]).otherwise(pair["le"]).alias("le"),
            so_far["rank"].alias("rank"),
        )

    return F.aggregate(pairs, start, step)["le"]
