"""What of Spark's inside is used: Java sources, workers, and whether this session has it."""
