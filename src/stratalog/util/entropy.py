"""Unpredictable random values, from the operating system."""

from __future__ import annotations

import os
import secrets


def random_bytes(count: int) -> bytes:
    """Return fresh random bytes, fit for keys and nonces."""
    return os.urandom(count)


def random_below(end: int) -> int:
    """Return a random number in 0 .. `end` - 1."""
    return secrets.randbelow(end)
