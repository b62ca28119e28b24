"""What answers of several subjects have in common."""

from __future__ import annotations

from typing import Literal, TypedDict

JsonTier = Literal["local", "remote"]


class PagedAnswer(TypedDict):
    """One page of many; `found` is how many there are in all."""

    found: int
    pageAt: int
    pages: int
