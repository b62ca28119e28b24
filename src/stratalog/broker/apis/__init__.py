"""One module for each API, named by its key: this listing is the table of the APIs of the broker."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache

from stratalog.broker.server import REGISTRY, Registry

_API_MODULE = re.compile(r"k\d\d_\w+")


@cache
def load_apis() -> Registry:
    """Import every `kNN_*.py` in this package, which registers its handler; return the registry."""
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        if _API_MODULE.fullmatch(name):
            importlib.import_module(f"{__name__}.{name}")
    return REGISTRY
