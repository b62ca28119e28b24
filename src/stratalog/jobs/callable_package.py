"""Packages that are functions too: `stratalog.jobs.audit(url)` is `run.audit` of that package.

The name is the function in the interface of `stratalog.jobs`, and the package once one of its modules was imported.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **options)


def make_callable(package: str) -> None:
    """Make calls of a package call the function of its name in its door."""
    sys.modules[package].__class__ = _CallablePackage
