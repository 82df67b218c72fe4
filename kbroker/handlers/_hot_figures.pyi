"""The hot path's figures, in C alone: no Python surface; see HotPath.statistics in _hot.pyi."""
