"""Heartbeat in C alone: no Python surface; see _hot.pyi."""
