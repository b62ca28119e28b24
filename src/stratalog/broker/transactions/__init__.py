"""Transactions: who may produce under a transactional id, and when what was produced counts."""
