"""One module for each API, named by its key: this listing is the table of the APIs of the broker."""

from __future__ import annotations

import importlib
import re
from functools import cache
from importlib.resources import files

from stratalog.broker.server import REGISTRY, Registry

_API_MODULE = re.compile(r"(k\d\d_\w+)\.py")


@cache
def load_apis() -> Registry:
    """Import every `kNN_*.py` in this package, which registers its handler; return the registry."""
    for entry in sorted(entry.name for entry in files(__name__).iterdir()):
        match = _API_MODULE.fullmatch(entry)
        if match:
            importlib.import_module(f"{__name__}.{match[1]}")
    return REGISTRY
