"""Studies: many short blocks in rounds, resumable, ending in verdicts. docs/studies.md."""
