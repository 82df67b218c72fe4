"""Share groups: members, assignments, and the share-partitions that have a state."""
