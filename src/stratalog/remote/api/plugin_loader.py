"""Load plugins by name, `module:Class`, from the broker's import path or from one of their own.

A class path is a list of directories and wheels, separated as in PATH. Its modules are imported under a unique name.
The plugin's `import x` finds modules of its own path first, then the broker's. So two plugins, or a plugin and the
broker, may each have their own version of a library. The standard library and `stratalog` are always the broker's. Only
import statements are redirected; `importlib.import_module("x")` in a plugin returns the broker's x.
"""

from __future__ import annotations

import builtins
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from stratalog.errors import UsageError

_SHARED = frozenset({"stratalog", *sys.stdlib_module_names})
_numbers = itertools.count(1)


def load_plugin(kind: str, interface: type, key: str, name: str, class_path: str | None) -> Any:
    """Return an instance of the class `name`. UsageError names key, class, path and reason.

    `kind` describes the plugin in messages, `interface` is the protocol it must implement.
    """
    where = f"{key}={name}" + (f" (class path {class_path})" if class_path else "")
    module_name, separator, class_name = name.partition(":")
    if not (separator and module_name and class_name):
        raise UsageError(f"{where}: expected module:Class")
    entries = _entries(where, class_path)
    try:
        module = _isolated(entries).load(module_name) if entries else importlib.import_module(module_name)
        made = getattr(module, class_name)()
    except Exception as error:
        raise UsageError(f"{where}: the {kind} plugin cannot be loaded: {_reason(error)}") from error
    missing = sorted(method for method in _methods(interface) if not callable(getattr(made, method, None)))
    if missing:
        raise UsageError(f"{where}: the {kind} plugin lacks {', '.join(missing)}")
    return made


def configure_plugin(
    kind: str,
    key: str,
    name: str,
    configure: Callable[[Mapping[str, str]], object],
    configs: Mapping[str, str],
) -> None:
    """Configure a plugin. UsageError names key, class and reason."""
    try:
        configure(configs)
    except Exception as error:
        raise UsageError(f"{key}={name}: the {kind} plugin refuses its configuration: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, ImportError | AttributeError | UsageError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _methods(interface: type) -> list[str]:
    return [name for name, value in vars(interface).items() if callable(value) and not name.startswith("_")]


def _entries(where: str, class_path: str | None) -> tuple[str, ...]:
    entries = tuple(entry for entry in (class_path or "").split(os.pathsep) if entry)
    for entry in entries:
        if not Path(entry).exists():
            raise UsageError(f"{where}: {entry} does not exist")
    return entries


def _isolated(entries: Sequence[str]) -> _IsolatedPath:
    return _IsolatedPath(f"_stratalog_plugin_{next(_numbers)}", entries)


class _IsolatedPath(MetaPathFinder):
    """Modules of an import path of its own, as a package that represents the path."""

    def __init__(self, package: str, entries: Sequence[str]) -> None:
        self._package = package
        self._entries = list(entries)
        self._builtins = {**vars(builtins), "__import__": self._import}
        parent = ModuleType(package)
        parent.__path__ = self._entries
        sys.modules[package] = parent
        sys.meta_path.insert(0, self)

    def load(self, name: str) -> ModuleType:
        """Return a module of the path, or the broker's if the path has none of this name. Raises ImportError."""
        importlib.invalidate_caches()
        return importlib.import_module(f"{self._package}.{name}" if self._has(name) else name)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{self._package}."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _WithBuiltins(spec.loader, self._builtins)
        return spec

    def _has(self, name: str) -> bool:
        top = name.partition(".")[0]
        return top not in _SHARED and PathFinder.find_spec(top, self._entries) is not None

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """`__import__` for the plugin's modules: `import a.b` returns a, `from a.b import c` returns a.b."""
        if level or not self._has(name):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        own = f"{self._package}.{name}"
        if fromlist:
            return builtins.__import__(own, globals, locals, fromlist, 0)
        importlib.import_module(own)
        return sys.modules[f"{self._package}.{name.partition('.')[0]}"]


class _WithBuiltins(Loader):
    """A loader whose modules see other builtins."""

    def __init__(self, loader: Loader, names: Mapping[str, Any]) -> None:
        self._loader = loader
        self._names = names

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = dict(self._names)
        self._loader.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        """Resources, sources and the like come from the loader."""
        return getattr(self._loader, name)
