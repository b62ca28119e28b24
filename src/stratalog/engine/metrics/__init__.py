"""Metrics, under the names of Kafka's."""
