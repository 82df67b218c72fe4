"""Tests of kbroker.cli."""
