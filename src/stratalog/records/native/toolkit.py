"""Building blocks of native loops: their compilation, and memory by address.

All integers are int64 and all memory is addressed by pointer. Numba's arrays would cost a second compilation for
read-only input and a wrap-around test for each access; in return, only the loops themselves check bounds. Importing
this module loads numba.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from stratalog.records.native.dtype import Words
from stratalog.records.native.jit import (
    CompileResultCacheImpl,
    FunctionCache,
    InTreeCacheLocator,
    cgutils,
    intrinsic,
    numba,
    types,
)

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger(__name__)


class _ReadOnlyLocator(InTreeCacheLocator):
    """Finds what was compiled beside the source at the installation, which may have become read-only.

    Numba's own locators leave out a directory that they cannot write to, as in a container with a read-only root.
    """

    def ensure_cache_path(self) -> None:
        source = Path(self._py_file)
        if not any((source.parent / "__pycache__").glob(f"{source.stem}.*.nbi")):
            raise FileNotFoundError(f"nothing of {source} was compiled beside it")


class _CacheImpl(CompileResultCacheImpl):
    _locator_classes = [  # noqa: RUF012 (of this name and shape in numba)
        *CompileResultCacheImpl._locator_classes[:2],
        _ReadOnlyLocator,
        *CompileResultCacheImpl._locator_classes[2:],
    ]


class _SparableCache(FunctionCache):
    """Numba's cache of one function. It compiles what cannot be read from the cache, and ignores write errors.

    In numba's own, a full disk, or an index that a power failure left empty, prevents compilation.
    """

    _impl_class = _CacheImpl

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


def compile_native(function: F, signature: Any = None, **options: Any) -> F:
    """Compile a function: now for one signature, else when a loop that calls it is compiled.

    Numba's cache keeps it, if there is one: beside the source, in the user's cache directory or in NUMBA_CACHE_DIR. In
    a read-only container, what was compiled beside the source is read, and nothing is kept.
    """
    dispatcher: Any = numba.njit(nogil=True, **options)(function)
    try:
        dispatcher._cache = _SparableCache(function)  # type: ignore[no-untyped-call]
    except (RuntimeError, OSError):
        _note_uncached(f"no cache directory for {Path(function.__code__.co_filename).parent} can be written to")
    if signature is not None:
        dispatcher.compile(signature)
        dispatcher.disable_compile()
    return cast("F", dispatcher)


def native(function: F) -> F:
    """Return a helper: compiled when a loop that calls it is."""
    return compile_native(function)


def inlined(function: F) -> F:
    """Return a helper that is worth a copy at each call."""
    return compile_native(function, forceinline=True)


def compiled(signature: str) -> Callable[[F], F]:
    """Return a loop that Python calls: compiled at import, or read from numba's cache. It holds no interpreter lock."""

    def decorate(function: F) -> F:
        return compile_native(function, signature)

    return decorate


def _pointer_to(target: Any) -> Any:
    as_pointer: Any = cast("Any", types.CPointer)(target)

    def pointer(_typing: Any, address: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return as_pointer(types.int64), codegen

    return intrinsic(pointer)


#: An address as a pointer to elements that can be read and written by index.
as_u8 = _pointer_to(types.uint8)
as_u32 = _pointer_to(types.uint32)
as_i16 = _pointer_to(types.int16)
as_i32 = _pointer_to(types.int32)
as_i64 = _pointer_to(types.int64)


def struct_at(struct: type[Words]) -> Any:
    """`rows(address, n)`: the n-th structure from an address on, whose fields can be read and written by name."""
    dtype = np.dtype(struct)
    record: Any = numba.from_dtype(dtype)

    def at(_typing: Any, address: Any, index: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            place = builder.add(args[0], builder.mul(args[1], ir.Constant(ir.IntType(64), dtype.itemsize)))
            return builder.inttoptr(place, context.get_value_type(record))

        return record(types.int64, types.int64), codegen

    return intrinsic(at)


def _load(bits: int, *, big_endian: bool) -> Any:
    def load(_typing: Any, address: Any) -> Any:  # noqa: ARG001
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            integer = ir.IntType(bits)
            value = builder.load(builder.inttoptr(args[0], integer.as_pointer()), align=1)
            if big_endian:
                value = builder.bswap(value)
            return value if bits == 64 else builder.sext(value, ir.IntType(64))

        return types.int64(types.int64), codegen

    return intrinsic(load)


#: The signed integer at any address. (Both supported architectures are little-endian.)
load_be16 = _load(16, big_endian=True)
load_be32 = _load(32, big_endian=True)
load_be64 = _load(64, big_endian=True)
load_le64 = _load(64, big_endian=False)


def _store(bits: int) -> Any:
    def store(_typing: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            integer = ir.IntType(bits)
            stored = args[1] if bits == 64 else builder.trunc(args[1], integer)
            builder.store(builder.bswap(stored), builder.inttoptr(args[0], integer.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return intrinsic(store)


#: store_beN(address, value): the low bits of an integer, at any address.
store_be16 = _store(16)
store_be32 = _store(32)
store_be64 = _store(64)


def _copy_32(_typing: Any, target: Any, source: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = ir.VectorType(ir.IntType(8), 32).as_pointer()
        block = builder.load(builder.inttoptr(args[1], pointer), align=1)
        builder.store(block, builder.inttoptr(args[0], pointer), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _copy_any(_typing: Any, target: Any, source: Any, size: Any) -> Any:  # noqa: ARG001
    raw_memcpy: Any = cgutils.raw_memcpy

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        target, source = (builder.inttoptr(address, byte) for address in args[:2])
        raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


#: copy_32(target, source): exactly 32 bytes.   copy_any(target, source, size): memcpy.
copy_32: Any = intrinsic(_copy_32)
copy_any: Any = intrinsic(_copy_any)
