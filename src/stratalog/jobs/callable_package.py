"""Packages that can be called: `stratalog.jobs.audit(url)` calls `run.audit` of that package.

In the interface of `stratalog.jobs` the name is the function. Once one of its modules is imported, it is the package.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **options)


def make_callable(package: str) -> None:
    """Make a call of a package call the function of the same name in its `__init__`."""
    sys.modules[package].__class__ = _CallablePackage
