"""Bytes of files: names, checkpoints, index entries, producer snapshots."""
