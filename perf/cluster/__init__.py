"""Measurements of several brokers: `kbroker perf cluster ...`, each on clusters of its own."""
