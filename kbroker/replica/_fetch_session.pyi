"""Fetch sessions, in C alone: no Python surface; see handlers/_hot.pyi for their count."""
