"""Random bytes that nobody can guess, from the operating system."""

from __future__ import annotations

import os


def random_bytes(count: int) -> bytes:
    """Fresh ones, fit for keys and nonces."""
    return os.urandom(count)
