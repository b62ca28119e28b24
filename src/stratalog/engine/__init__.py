"""The engine: all partitions of one process, and the only place where the local and the remote tier meet."""
