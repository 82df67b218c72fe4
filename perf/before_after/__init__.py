"""An older build beside this one: `kbroker perf before-after`. perf/README.md explains it."""
