"""Groups of the consumer protocol (KIP-848), kbroker's beside Apache Kafka's."""
