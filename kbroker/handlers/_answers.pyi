"""A worker and its answers, in C alone: no Python surface; see _hot.pyi."""
