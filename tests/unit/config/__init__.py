"""Tests of kbroker.config."""
