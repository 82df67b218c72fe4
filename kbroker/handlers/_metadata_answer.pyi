"""Metadata answers, in C alone; reached through _hot.HotPath."""
