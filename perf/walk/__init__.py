"""`make walk`: the units whose functions run for one warm request. docs/walk.md."""
