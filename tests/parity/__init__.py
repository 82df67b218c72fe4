"""The same requests to Apache Kafka 4.3.0 and to kbroker, and their answers side by side.

See README.md for how a case is written; `make parity` for how Apache Kafka's answers are recorded.
"""
