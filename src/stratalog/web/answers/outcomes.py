"""Response types of no page: changes, errors and health."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class DoneAnswer(TypedDict):
    """A description of the change made."""

    done: str


class WrongFieldsAnswer(TypedDict):
    """Errors by field, or `error` for an unreadable request."""

    errors: NotRequired[dict[str, str]]
    error: NotRequired[str]


class ErrorAnswer(TypedDict):
    """The error of a failed request."""

    error: str


class LiveAnswer(TypedDict):
    """Whether the broker's event loop responds; `reason` if not."""

    status: Literal["live", "stalled"]
    reason: NotRequired[str]


class ReadyAnswer(TypedDict):
    """Whether all clients are served, and what is missing: what is still loading, failed directories."""

    status: Literal["ready", "loading", "stalled"]
    loading: NotRequired[list[str]]
    offline_directories: NotRequired[dict[str, str]]
    reason: NotRequired[str]


class OpenApiAnswer(TypedDict):
    """An OpenAPI document."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]
    components: dict[str, Any]
    security: list[dict[str, Any]]
