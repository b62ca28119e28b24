"""`stratalog dump`: what is in a segment, index, snapshot or checkpoint file, in kafka-dump-log's words."""
