"""A Kafka-compatible, tiered log storage engine, with Spark as its data engine.

with stratalog.Broker(data_dir=..., listen="127.0.0.1:0") as broker: ...
log = stratalog.open_log(path, config)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stratalog.broker.server import Broker
    from stratalog.log import open_log

__all__ = ["Broker", "__version__", "open_log"]

__version__ = "0.1.0"

#: Imported when they are asked for, so that a command line or a Spark worker does not pay for a broker.
_LAZY = {"Broker": "stratalog.broker.server.server", "open_log": "stratalog.log.opening"}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)
