"""Tests of kbroker.security."""
