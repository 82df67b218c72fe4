"""The answer of a fetch, in C alone: no Python surface; see _hot.pyi."""
