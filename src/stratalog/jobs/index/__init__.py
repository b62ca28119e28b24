"""Indexes held against their logs, rebuilt and converted."""
