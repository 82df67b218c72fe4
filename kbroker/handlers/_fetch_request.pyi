"""Parsing a Fetch request, in C alone: no Python surface; see _hot.pyi."""
