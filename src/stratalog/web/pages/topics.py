"""All topics, searched, sorted and paged on the server, so that the cost does not depend on their number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from stratalog.log.retention import is_tiered
from stratalog.web.declarations import Console
from stratalog.web.fields import choice, whole, words
from stratalog.web.pages.partition_numbers import TierNumbers, numbers_by_topic
from stratalog.web.viewer import ConsoleViewer

SORTS: Final = ("name", "partitions", "records", "local", "remote", "upload", "rate", "out")
PAGE_SIZE: Final = 50
_PAGE_MAX: Final = 100_000

FIELDS = (
    words("q", longest=249, help="Part of the topic's name."),
    choice("sort", SORTS, help="The column to sort by."),
    choice("order", ("asc", "desc")),
    choice("internal", ("no", "yes"), help="Whether topics of the broker itself are shown."),
    whole("page", 1, 1, _PAGE_MAX),
    whole("size", PAGE_SIZE, 1, 1000, help="Topics on a page."),
)


def view(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:
    query = values["q"].lower()
    shown = [
        name
        for name in viewer.topics()
        if query in name.lower() and (values["internal"] == "yes" or not name.startswith("__"))
    ]
    numbers = numbers_by_topic(viewer.broker.logs, shown)
    rates = console.sampler.topic_rates
    keys: dict[str, Callable[[str], Any]] = {
        "name": lambda name: name,
        "partitions": lambda name: numbers[name].partitions,
        "records": lambda name: numbers[name].records,
        "local": lambda name: numbers[name].local_bytes,
        "remote": lambda name: numbers[name].remote_bytes,
        "upload": lambda name: numbers[name].upload_bytes,
        "rate": lambda name: rates.get(name, (0.0,))[0],
        "out": lambda name: rates.get(name, (0.0, 0.0))[1],
    }
    shown.sort(key=keys[values["sort"]], reverse=values["order"] == "desc")
    size = values["size"]
    pages = max((len(shown) + size - 1) // size, 1)
    page = min(values["page"], pages)
    return {
        "found": len(shown),
        "pageAt": page,
        "pages": pages,
        "topics": [
            _row(viewer, name, numbers[name], rates.get(name, (0.0, 0.0, 0.0)))
            for name in shown[(page - 1) * size : page * size]
        ],
    }


def _row(viewer: ConsoleViewer, name: str, numbers: TierNumbers, rates: tuple[float, float, float]) -> dict[str, Any]:
    return {
        "name": name,
        "internal": name.startswith("__"),
        **numbers.json(),
        "bytesInRate": rates[0],
        "bytesOutRate": rates[1],
        "recordsInRate": rates[2],
        **settings_in_short(viewer, name),
    }


def settings_in_short(viewer: ConsoleViewer, name: str) -> dict[str, Any]:
    """Return the most important settings of a topic."""
    topic = viewer.broker.metadata.topic(name)
    if topic is None:  # just deleted
        return {"policy": "", "tiered": False, "retentionMs": -1, "retentionBytes": -1}
    config = viewer.log_config(topic.configs)
    return {
        "policy": ",".join(sorted(config.cleanup_policy)),
        "tiered": is_tiered(config),
        "retentionMs": config.retention_ms,
        "retentionBytes": config.retention_bytes,
        "localRetentionMs": config.effective_local_retention_ms,
        "localRetentionBytes": config.effective_local_retention_bytes,
    }
