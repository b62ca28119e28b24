"""Common parts of the response types."""

from __future__ import annotations

from typing import Literal, TypedDict

JsonTier = Literal["local", "remote"]


class PagedAnswer(TypedDict):
    """One page of many; `found` is the total count."""

    found: int
    pageAt: int
    pages: int
