"""A broker that speaks the Apache Kafka protocol."""

# As in pyproject.toml; a test compares the two.
__version__ = "0.1.0"
