"""Reading ahead for Processors, in C alone: no Python surface."""
