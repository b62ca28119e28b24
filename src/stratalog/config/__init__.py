"""Declared configuration: every key with its type, default, validator, documentation and whether it is dynamic."""
