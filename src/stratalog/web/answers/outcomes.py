"""Shapes of the answers that belong to no page: changes, errors and health."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class DoneAnswer(TypedDict):
    """What a change did, in words."""

    done: str


class WrongFieldsAnswer(TypedDict):
    """What is wrong with each field that is; or `error`, where the request cannot be read."""

    errors: NotRequired[dict[str, str]]
    error: NotRequired[str]


class ErrorAnswer(TypedDict):
    """Why there is no answer."""

    error: str


class LiveAnswer(TypedDict):
    """Whether the broker's loop turns; `reason` is why not."""

    status: Literal["live", "stalled"]
    reason: NotRequired[str]


class ReadyAnswer(TypedDict):
    """Whether clients of every kind are served, and what is missing: what is still read, directories by their error."""

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
