"""Kafka's messages by number and version, and a small synchronous client that speaks them."""
