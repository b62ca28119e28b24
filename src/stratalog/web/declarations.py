"""A page of the console: one view, shown as HTML and given as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stratalog.broker import BrokerServices
from stratalog.web.events import EventKeeper
from stratalog.web.fields import InputField
from stratalog.web.sampler import RateSampler
from stratalog.web.viewer import ConsoleViewer

#: Returns what bytes mean by their schema; bytes without one stay bytes. StratalogError when that cannot be told.
SchemaReader = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Console:
    """What views share besides the broker."""

    broker: BrokerServices
    sampler: RateSampler
    events: EventKeeper
    #: Addresses that clients connect to.
    bootstrap_servers: str
    #: Makes values of bytes behind the id of a schema; None where no registry is known.
    schemas: SchemaReader | None = None


#: (viewer, console, path parameters and fields) -> what JSON has, and the template shows
View = Callable[[ConsoleViewer, Console, Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Page:
    """`path` is that of the HTML; JSON is below `/api`. `name` is that of the template.

    `answer` is a typed dictionary, the shape of what `view` returns.
    """

    path: str
    name: str
    summary: str
    view: View
    answer: type
    fields: tuple[InputField, ...] = ()


#: (viewer, console, path parameters and fields) -> where to go on, and what to say there
Act = Callable[[ConsoleViewer, Console, Mapping[str, Any]], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class PageChange:
    """A change that is asked for by a form on a page, sent to `path` by POST; `page` is shown again with its errors."""

    path: str
    page: str
    summary: str
    act: Act
    fields: tuple[InputField, ...] = ()


class ChangeConflictError(Exception):
    """What a form was about to change has been changed since the form was shown."""


class NotThatValueError(Exception):
    """A field of a form has a value that the broker refuses; `field` is the one to say it at."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field
