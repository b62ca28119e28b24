"""The log cleaner: which log next, its threads and checkpoints."""
