"""What a fetch names twice, in C alone: no Python surface; see _hot.pyi."""
