"""The outside world and small codecs: clock, files, checksums, varints. Nothing here knows about Kafka's log."""
