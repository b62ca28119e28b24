"""Log directories: identity, loading, checkpoints, failure."""
