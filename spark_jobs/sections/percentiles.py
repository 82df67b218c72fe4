"""Percentiles from histograms that were merged, never from percentiles that were averaged.

A histogram is a column array<struct<le, count>>: how many values lie in the bucket whose largest
value is `le`, not cumulative. Histograms of one kind have the same bounds, so merging them is
adding counts. A percentile is the bucket in which the value of that rank lies (the rank that
perf.histogram takes), so `p99` of a merge is what one histogram of all values would say.

`merged` reads its input once, whatever the number of percentiles: each row's buckets are spread,
the counts added before the shuffle, and each group's percentiles all come from one sorted array.
`of_row` gives them for every row by itself, without a shuffle. Values that no histogram has (a
count below 1, a bound that is no number) do not count: records may hold anything.

Expressions are written as SQL, which is one question to the JVM: a tree of calls is hundreds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    # Each row brings one more element, without a bound: so rows are counted in the same pass.
    marked = f"concat(coalesce({_sane('buckets')}, array()), array({_OF_A_ROW}))"
    sums = ["sum(double(bucket.count)) AS n"]
    found = [
        "bigint(sum(if(le IS NULL, n, 0D))) AS blocks",
        "sum(if(le IS NULL, 0D, n)) AS total",
        "array_sort(collect_list(if(le IS NULL, NULL, struct(le, n)))) AS sorted",
    ]
    if ends is not None:
        sums += [f"min({ends[0]}) AS least", f"max({ends[1]}) AS most"]
        found += ["min(least) AS least", "max(most) AS most"]
    spread = frame.selectExpr(*by, *(ends or ()), f"explode({marked}) AS bucket")
    added = spread.groupBy(*by, F.expr("bucket.le AS le")).agg(*map(F.expr, sums))
    grouped = added.groupBy(*by).agg(*map(F.expr, found))
    places = [f"{_at('sorted', 'total', each)} AS {name_of(each)}" for each in percents]
    least_most = [] if ends is None else ["least", "most"]
    return grouped.selectExpr(*by, *least_most, "blocks", "total", *places)


def of_row(buckets: str, percents: Sequence[float] = PERCENTS) -> list[str]:
    """The percentiles of each row's own histogram, as columns in SQL."""
    pair = "b -> named_struct('le', b.le, 'n', double(b.count))"
    pairs = f"array_sort(transform({_sane(buckets)}, {pair}))"
    total = f"aggregate({pairs}, 0D, (so_far, pair) -> so_far + pair.n)"
    return [f"{_at(pairs, total, percent)} AS {name_of(percent)}" for percent in percents]


def middle(le: str) -> str:
    """The value used for all values of perf.histogram's bucket with the largest value `le`, in SQL.

    As perf.histogram has it: the bucket's middle.
    """
    bits = f"length(bin(bigint(least(greatest({le}, 1D), {LE_MAX!r}D))))"
    shift = f"greatest({bits} - 1 - {SUB_BITS}, 0)"
    return f"if({le} IS NULL, NULL, {le} - (pow(2D, {shift}) - 1) / 2)"


_OF_A_ROW: Final = "named_struct('le', double(NULL), 'count', 1L)"


def _sane(buckets: str) -> str:
    """Those with a bound and a count that can be."""
    counts = f"b.count > 0 AND b.count < {COUNT_MAX}L"
    return f"filter({buckets}, b -> b.le IS NOT NULL AND NOT isnan(b.le) AND {counts})"


def _at(pairs: str, total: str, percent: float) -> str:
    """The bound of the bucket that holds the value of this rank."""
    rank = f"greatest(double(ceil({percent / 100!r}D * {total})), 1D)"
    # The rank goes along in what is added up: in the step it would be worked out for every bucket.
    start = f"named_struct('n', 0D, 'le', double(NULL), 'rank', {rank})"
    step = (
        "(so_far, pair) -> if(so_far.n >= so_far.rank, so_far,"
        " named_struct('n', so_far.n + pair.n, 'le', pair.le, 'rank', so_far.rank))"
    )
    return f"aggregate({pairs}, {start}, {step}).le"
