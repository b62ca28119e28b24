"""Declaration of a page of the console: one view, rendered as HTML and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stratalog.broker import BrokerServices
from stratalog.web.events import EventKeeper
from stratalog.web.fields import InputField
from stratalog.web.sampler import RateSampler
from stratalog.web.viewer import ConsoleViewer

#: Decodes bytes by their schema; bytes without one are returned unchanged. Raises StratalogError.
SchemaReader = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Console:
    """Data that views share besides the broker."""

    broker: BrokerServices
    sampler: RateSampler
    events: EventKeeper
    #: Addresses for clients.
    bootstrap_servers: str
    #: Decodes bytes after a schema id; None without a registry.
    schemas: SchemaReader | None = None


#: (viewer, console, path parameters and fields) -> data for JSON and the template
View = Callable[[ConsoleViewer, Console, Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page. `path` is that of the HTML; JSON is below `/api`. `name` is the template.

    `answer` is a typed dictionary, the type of the result of `view`.
    """

    path: str
    name: str
    summary: str
    view: View
    answer: type
    fields: tuple[InputField, ...] = ()


#: (viewer, console, path parameters and fields) -> path to redirect to, and a message
Act = Callable[[ConsoleViewer, Console, Mapping[str, Any]], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class PageChange:
    """A change by a form on a page, sent to `path` by POST. On errors `page` is shown again."""

    path: str
    page: str
    summary: str
    act: Act
    fields: tuple[InputField, ...] = ()


class ChangeConflictError(Exception):
    """The data of a form have changed since it was shown."""


class NotThatValueError(Exception):
    """The broker rejects the value of a field; `field` shows the error."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field
