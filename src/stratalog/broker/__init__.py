"""The broker: Kafka's wire protocol over the engine. One API a file in `apis`; storage stays synchronous below."""
