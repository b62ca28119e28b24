"""MD5 (RFC 1321) for native loops, callable without the interpreter.

Hashing a short key takes less time here than a call from Python. The 64 steps of a block are written as 32-bit
instructions; the compiler would otherwise generate 64-bit sums and masks.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any, Final

from stratalog.records.native import Lazy, as_i64, as_u8, copy_any, inlined, intrinsic, ir, types

DIGEST_SIZE: Final = 16
#: The memory that `md5` needs: the digest, then room for the last two blocks of a message.
SCRATCH_SIZE: Final = DIGEST_SIZE + 128

_WORD: Any = Lazy(lambda: import_module("llvmlite.ir").IntType(32))
_SINES: Final = tuple(int(abs(math.sin(step + 1)) * 2**32) for step in range(64))
_SHIFTS: Final = ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))
#: Which word of the block step n of each round takes: (factor * n + first) mod 16.
_ORDER: Final = ((1, 0), (5, 1), (3, 5), (7, 0))


def _mixed(builder: Any, number: int, b: Any, c: Any, d: Any) -> Any:
    """Return the function of one of the four rounds."""
    if number == 0:
        return builder.xor(d, builder.and_(b, builder.xor(c, d)))
    if number == 1:
        return builder.xor(c, builder.and_(d, builder.xor(b, c)))
    if number == 2:
        return builder.xor(builder.xor(b, c), d)
    return builder.xor(c, builder.or_(b, builder.not_(d)))


def _block(_typing: Any, state: Any, block: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        rotate = builder.module.declare_intrinsic("llvm.fshl.i32", fnty=ir.FunctionType(_WORD, [_WORD, _WORD, _WORD]))
        digest, data = (builder.inttoptr(address, _WORD.as_pointer()) for address in args)

        def word(pointer: Any, n: int) -> Any:
            return builder.load(builder.gep(pointer, [ir.Constant(_WORD, n)]), align=1)

        before = [word(digest, n) for n in range(4)]
        words = [word(data, n) for n in range(16)]
        a, b, c, d = before
        for step in range(64):
            number, n = divmod(step, 16)
            factor, first = _ORDER[number]
            term = builder.add(words[(factor * n + first) % 16], ir.Constant(_WORD, _SINES[step]))
            total = builder.add(builder.add(a, term), _mixed(builder, number, b, c, d))
            turned = builder.call(rotate, [total, total, ir.Constant(_WORD, _SHIFTS[number][n % 4])])
            a, b, c, d = d, builder.add(b, turned), b, c
        for n, value in enumerate((a, b, c, d)):
            target = builder.gep(digest, [ir.Constant(_WORD, n)])
            builder.store(builder.add(before[n], value), target, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


#: add_block(state, block): take the 64 bytes at `block` into the 16 bytes of state.
_add_block: Any = intrinsic(_block)


@inlined
def md5(address: int, size: int, scratch: int) -> None:
    """Write the MD5 of `size` bytes at `address` into the first 16 bytes of `scratch`."""
    state = as_i64(scratch)
    state[0] = -1167088121787636991  # the initial words, two by two: 0xEFCDAB8967452301
    state[1] = 1167088121787636990  # 0x1032547698BADCFE
    left = size
    while left >= 64:
        _add_block(scratch, address)
        address += 64
        left -= 64
    tail = scratch + 16
    words = as_i64(tail)
    for n in range(8):
        words[n] = 0
    copy_any(tail, address, left)
    as_u8(tail)[left] = 0x80
    if left >= 56:
        for n in range(8, 16):
            words[n] = 0
        words[15] = size * 8
        _add_block(scratch, tail)
        _add_block(scratch, tail + 64)
    else:
        words[7] = size * 8
        _add_block(scratch, tail)
