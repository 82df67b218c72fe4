"""Backups of a broker that serves, and new brokers made of them: see docs/backup.md."""
