"""What a produce names twice, in C alone: no Python surface; see _hot.pyi."""
