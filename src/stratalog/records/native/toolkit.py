"""Building blocks of native loops: their compilation, and memory by address.

All integers are int64 and all memory is addressed by pointer. Numba's arrays would cost a second compilation for
read-only input and a wrap-around test for each access; in return, only the loops themselves check bounds. Importing
this module loads neither numba nor llvmlite: that is for a loop to do that is not kept as machine code (`kept_loops`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, cast

from stratalog.records.native.dtype import Words
from stratalog.records.native.kept_loops import load
from stratalog.records.native.lazy import COMPILING, Lazy, make_globals

F = TypeVar("F", bound=Callable[..., Any])


def _of_numba(name: str) -> Any:
    return Lazy(lambda: getattr(import_module("stratalog.records.native.jit"), name))


#: For the bodies of loops and intrinsics alone.
numba: Any = _of_numba("numba")
types: Any = _of_numba("types")
cgutils: Any = _of_numba("cgutils")
ir: Any = Lazy(lambda: import_module("llvmlite.ir"))


def _compiled_now(function: Callable[..., Any], signature: str | None = None, **options: Any) -> Any:
    with COMPILING:
        return import_module("stratalog.records.native.compiling").compile_native(function, signature, **options)


def native(function: F) -> F:
    """Return a helper: compiled when a loop that calls it is."""
    return cast("F", Lazy(lambda: _compiled_now(function)))


def inlined(function: F) -> F:
    """Return a helper that is worth a copy at each call."""
    return cast("F", Lazy(lambda: _compiled_now(function, forceinline=True)))


def compiled(signature: str, *, nogil: bool = True) -> Callable[[F], F]:
    """Return a loop that Python calls, as machine code at import. It holds no interpreter lock.

    One that takes less than a microsecond keeps the lock (`nogil` False): who lets go of it may wait to have it again.
    """

    def decorate(function: F) -> F:
        kept = load(function, signature)
        return cast("F", _compiled_now(function, signature, nogil=nogil) if kept is None else kept)

    return decorate


def intrinsic(function: Callable[..., Any]) -> Any:
    """Return what puts instructions of its own into a loop."""

    def make() -> Any:
        jit = import_module("stratalog.records.native.jit")
        make_globals(function)
        return jit.intrinsic(function)

    return Lazy(make)


def _pointer_to(target: str) -> Any:
    def pointer(_typing: Any, address: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(getattr(types, target))(types.int64), codegen

    return intrinsic(pointer)


#: An address as a pointer to elements that can be read and written by index.
as_u8 = _pointer_to("uint8")
as_u32 = _pointer_to("uint32")
as_i16 = _pointer_to("int16")
as_i32 = _pointer_to("int32")
as_i64 = _pointer_to("int64")


def struct_at(struct: type[Words]) -> Any:
    """`rows(address, n)`: the n-th structure from an address on, whose fields can be read and written by name."""

    def at(_typing: Any, address: Any, index: Any) -> Any:  # noqa: ARG001
        import numpy as np  # start-up cost

        dtype = np.dtype(struct)
        record: Any = numba.from_dtype(dtype)

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


def _prefetch(_typing: Any, address: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        read, keep, data = (ir.Constant(word, value) for value in (0, 3, 1))
        builder.call(fetch, [builder.inttoptr(args[0], byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


#: prefetch(address): have the line at an address, which need not be readable, in the cache soon.
prefetch: Any = intrinsic(_prefetch)


def _copy_32(_typing: Any, target: Any, source: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = ir.VectorType(ir.IntType(8), 32).as_pointer()
        block = builder.load(builder.inttoptr(args[1], pointer), align=1)
        builder.store(block, builder.inttoptr(args[0], pointer), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _copy_any(_typing: Any, target: Any, source: Any, size: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        target, source = (builder.inttoptr(address, byte) for address in args[:2])
        cgutils.raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


#: copy_32(target, source): exactly 32 bytes.   copy_any(target, source, size): memcpy.
copy_32: Any = intrinsic(_copy_32)
copy_any: Any = intrinsic(_copy_any)
