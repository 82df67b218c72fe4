"""Consumers that come and go at random, and what may not be lost by it. See README.md."""
