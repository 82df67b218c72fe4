"""Share-partitions in service: machines of `replica/share` with logs, states and waits."""
