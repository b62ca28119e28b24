"""Reads of remote segments: blocks, indexes and their cache."""
