"""Metadata for the hot path, in C alone; reached through _hot.HotPath."""
