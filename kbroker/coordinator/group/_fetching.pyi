"""Compiled; for other units only."""
