"""`stratalog dump`: print segment, index, snapshot and checkpoint files in the format of kafka-dump-log."""
