"""In which order the files of a run begin, where several processes take one after the other.

First those with a Spark session (tests/support/together.py), since each of the two is a long part
of the run. Last those whose tests must be alone on the machine (tests/support/alone.py). Of the
others some compute, and some wait for brokers, JVMs and times of their own. Were one kind after the
other, a run would leave a third of the processors idle first, and later have more processes that
compute than there are processors. So both kinds are spread over the run: a file has its place by
the share of its kind's time that comes before it. Within a kind the longest come first, so that no
process is left alone with one of them at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from tests.support.together import scope_of

# Below tests/, as `make test ARGS=--durations=0` last showed them: those of 18 seconds and more.
SECONDS: Final = {
    "spark/test_stream.py": 243,
    "parity/test_parity.py": 167,
    "sanitizers/test_short_runs.py": 146,
    "spark/test_cluster.py": 140,
    "system/test_wheel.py": 97,
    "clients/test_matrix.py": 93,
    "system/test_before_after.py": 91,
    "parity/test_recorded_anew.py": 90,
    "spark/test_kills.py": 91,
    "spark/test_secure.py": 85,
    "spark/test_first_report.py": 85,
    "clients/test_assignments.py": 83,
    "cluster/test_faults.py": 82,
    "spark/test_maintain_deaths.py": 81,
    "system/test_logdir_adopt.py": 79,
    "spark/test_maintain.py": 79,
    "simulation/test_simulation.py": 67,
    "system/test_replication.py": 66,
    "spark/test_rollup.py": 63,
    "system/test_leader_epochs.py": 55,
    "chaos/test_chaos.py": 53,
    "system/test_latency_study.py": 51,
    "fuzz/test_frames.py": 47,
    "spark/test_kbroker_source.py": 46,
    "system/test_image.py": 45,
    "system/test_perf_transactions.py": 44,
    "spark/test_silence_process.py": 43,
    "system/test_testing_cluster.py": 42,
    "unit/log/test_every_file_operation.py": 41,
    "system/test_rude_peers.py": 40,
    "system/test_hanging_disk.py": 40,
    "spark/test_end_to_end.py": 40,
    "simulation/test_shares.py": 39,
    "clients/test_quotas.py": 39,
    "spark/test_sections_pipeline.py": 38,
    "fuzz/test_secure_run.py": 37,
    "system/test_closest_replica.py": 36,
    "clients/test_sasl.py": 36,
    "system/test_clients_at_failover.py": 35,
    "simulation/test_planted.py": 34,
    "exactly_once/test_scenarios.py": 32,
    "system/test_cluster_watch.py": 31,
    "unit/log/test_log_move_failures.py": 30,
    "clients/test_side_by_side.py": 30,
    "unit/replica/test_failing_disk.py": 29,
    "system/test_perf_cluster.py": 28,
    "system/test_kafka_opens_our_logs.py": 28,
    "system/test_sasl_between_brokers.py": 26,
    "spark/test_throughput.py": 26,
    "spark/test_sections_metrics.py": 26,
    "system/test_recovery_beside.py": 25,
    "clients/test_transactions.py": 25,
    "system/test_several_brokers.py": 24,
    "clients/test_secure_init.py": 24,
    "spark/test_sink.py": 23,
    "unit/test_callers.py": 22,
    "simulation/test_transactions.py": 22,
    "system/test_rolling_restart.py": 21,
    "system/test_reassignment.py": 21,
    "clients/test_days.py": 21,
    "unit/metadata/store/test_model.py": 20,
    "unit/log/test_power_cut.py": 20,
    "system/test_recompression.py": 20,
    "system/test_compaction.py": 20,
    "clients/test_round_trip.py": 20,
    "unit/net/test_transport.py": 19,
    "system/test_share_consumers_at_failover.py": 19,
    "system/test_dump_log.py": 19,
    "system/test_bad_peers.py": 19,
    "clients/test_kcat.py": 19,
    "clients/test_oauth.py": 18,
}
COMPUTING: Final = ("model/", "parity/test_parity.py", "sanitizers/", "simulation/", "unit/")
COMPUTING_S: Final = 1.5  # of a file that has no number above
WAITING_S: Final = 6.0

Place = tuple[int, float]


def places(files: Iterable[str], alone: Collection[str]) -> dict[str, Place]:
    """By file, both below tests/: to sort by. `alone`: those that have a test with that mark."""
    found: dict[str, Place] = {}
    kinds: tuple[list[str], list[str]] = ([], [])
    for file in files:
        if file in alone:
            found[file] = (2, 0.0)
        elif has_a_session(file):
            found[file] = (0, -seconds(file))
        else:
            kinds[computes(file)].append(file)
    for kind in kinds:
        whole, before = sum(map(seconds, kind)), 0.0
        for file in sorted(kind, key=seconds, reverse=True):
            found[file] = (1, before / whole)
            before += seconds(file)
    return found


def has_a_session(file: str) -> bool:
    return scope_of(f"tests/{file}") != f"tests/{file}"


def computes(file: str) -> bool:
    return file.startswith(COMPUTING)


def seconds(file: str) -> float:
    return SECONDS.get(file, COMPUTING_S if computes(file) else WAITING_S)
