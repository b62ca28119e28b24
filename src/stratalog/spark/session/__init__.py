"""Sessions, and what of ours runs in their JVM and beside it."""
