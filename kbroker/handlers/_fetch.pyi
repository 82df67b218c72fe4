"""Fetch of a run, in C alone: no Python surface; see _hot.pyi."""
