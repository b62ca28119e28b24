"""The compilation of native loops by numba, and numba's cache. Importing this module loads numba."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from stratalog.records.native import kept_loops
from stratalog.records.native.jit import CompileResultCacheImpl, FunctionCache, InTreeCacheLocator, numba
from stratalog.records.native.lazy import COMPILING, make_globals

logger = logging.getLogger(__name__)


class _ReadOnlyLocator(InTreeCacheLocator):
    """Finds code that was compiled next to the source at installation, in a directory that may be read-only by now.

    Numba's own locators leave out a directory that they cannot write to, as in a container with a read-only root.
    """

    def ensure_cache_path(self) -> None:
        source = Path(self._py_file)
        if not any((source.parent / "__pycache__").glob(f"{source.stem}.*.nbi")):
            raise FileNotFoundError(f"no compiled code of {source} next to it")


class _CacheImpl(CompileResultCacheImpl):
    _locator_classes = [  # noqa: RUF012 (of this name and shape in numba)
        *CompileResultCacheImpl._locator_classes[:2],
        _ReadOnlyLocator,
        *CompileResultCacheImpl._locator_classes[2:],
    ]
    #: The machine code of the function.
    code = b""

    def reduce(self, cres: Any) -> Any:
        reduced = super().reduce(cres)  # type: ignore[no-untyped-call]
        self.code = _object_in(reduced)
        return reduced

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        self.code = _object_in(payload)
        return super().rebuild(target_context, payload)  # type: ignore[no-untyped-call]


def _object_in(reduced: Any) -> bytes:
    """Return the object in what numba's cache keeps of a function; none if it keeps something else."""
    _, kind, content = reduced[0]
    return bytes(content[0]) if kind == "object" else b""


class _SparableCache(FunctionCache):
    """Numba's cache of one function. It compiles what cannot be read from the cache, and ignores write errors.

    In numba's own, a full disk, or an index that a power failure left empty, prevents compilation.
    """

    _impl_class = _CacheImpl

    @property
    def code(self) -> bytes:
        """The machine code that was read or written last."""
        code: bytes = self._impl.code
        return code

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception as error:  # what is no pickle raises anything  # noqa: BLE001
            _note_uncached(f"{self.cache_path} cannot be read: {error!r}")
            with suppress(OSError):
                # An index that cannot be read could not be added to either.
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001
            _note_uncached(f"{self.cache_path} cannot be written: {error!r}")


@cache
def _note_uncached(reason: str) -> None:
    logger.warning(
        "Native loops are compiled by each process that needs them, which takes seconds: %s."
        " NUMBA_CACHE_DIR names a directory to keep them in",
        reason,
    )


def compile_native(function: Callable[..., Any], signature: str | None = None, **options: Any) -> Any:
    """Compile a function: now for one signature, else when a loop that calls it is compiled.

    Numba's cache keeps it, if there is one: next to the source, in the user's cache directory or in NUMBA_CACHE_DIR. In
    a read-only container, code compiled next to the source is read, and nothing is written. A loop is also kept so that
    it loads without numba (`kept_loops`).
    """
    with COMPILING:
        make_globals(function)
        dispatcher: Any = numba.njit(**{"nogil": True, **options})(function)
        kept: _SparableCache | None = None
        try:
            dispatcher._cache = kept = _SparableCache(function)  # type: ignore[no-untyped-call]
        except (RuntimeError, OSError):
            _note_uncached(f"no cache directory for {Path(function.__code__.co_filename).parent} can be written to")
        if signature is not None:
            dispatcher.compile(signature)
            dispatcher.disable_compile()
            if kept is not None and kept.code:
                (result,) = dispatcher.overloads.values()
                names = result.fndesc
                kept_loops.keep(
                    function,
                    signature,
                    kept.code,
                    wrapper=names.llvm_cpython_wrapper_name,
                    environment=names.env_name,
                )
    return dispatcher
