"""Backups: what is saved beside a broker, what is refused, and what a restore makes of it."""
