"""Compiled loops, kept as machine code that loads without numba.

numba takes most of a second and 60 MB before it gives what it has in its cache. What it has there is an ELF object,
with a function in it that Python calls as one of any C extension; llvmlite alone loads that, in some ten milliseconds.
So each loop is kept a second time, next to numba's cache. A file here is used only if everything fits: the sources of
all loops by time and size, the processor, Python, llvmlite, its own checksum, and every symbol that it wants from
outside. Else numba compiles, or reads its own cache, and the file is written again.

    at           size  content
     0             32  SHA-256 of the rest
    32              4  size of the JSON, big-endian
    36                 JSON: "key" (what has to fit), "function", "environment" (names in the object)
                       the object

Linux only: elsewhere objects are of other formats, and numba is used.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from stratalog.records.native.lazy import COMPILING
from stratalog.records.native.registry import KERNELS, SHARED
from stratalog.util import REAL_FILESYSTEM, write_atomic

_CHECKSUM_SIZE: Final = 32
_JSON_SIZE: Final = struct.Struct(">I")
#: The loop takes its arguments as a tuple and a dictionary, as numba makes it.
_METHOD_FLAGS: Final = 0x0001 | 0x0002  # METH_VARARGS | METH_KEYWORDS

#: What numba has for an exception in a loop, which none of ours raises: a loop that did would end with MemoryError, as
#: by the first, and call what does nothing.
_ERROR_PATH: Final = {
    "numba_unpickle": "PyErr_NoMemory",
    "numba_runtime_build_excinfo_struct": "PyErr_NoMemory",
    "numba_do_raise": "Py_IsInitialized",
    "numba_gil_ensure": "Py_IsInitialized",
    "numba_gil_release": "Py_IsInitialized",
    "NRT_Free": "Py_IsInitialized",
}

# ELF, 64 bits, little-endian
_ELF_MAGIC: Final = b"\x7fELF\x02\x01"
_ELF_SECTIONS: Final = struct.Struct("<40xQ10xHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE: Final = 2


class _Method(ctypes.Structure):
    """`PyMethodDef`, which outlives its function."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


#: Objects that loaded loops point at, kept until the process ends.
_methods: Final[list[_Method]] = []
#: numba's loops look whether they have an environment; only one that raises or returns an object looks into it.
_environment: Final = object()


def load(function: Callable[..., Any], signature: str) -> Callable[..., Any] | None:
    """Return the loop that was kept for this function; None if there is none that fits."""
    if not _is_possible():
        return None
    for path in _places(function):
        with suppress(OSError):
            found = _read(REAL_FILESYSTEM.read_bytes(path), _key(function, signature))
            if found is not None:
                names, code = found
                return _linked(function, names, code)
    return None


def keep(function: Callable[..., Any], signature: str, code: bytes, *, wrapper: str, environment: str) -> None:
    """Keep what numba compiled, in the first place that can be written to; nowhere if it needs more than Python."""
    if not _is_possible() or not all(map(_is_resolved, wanted_symbols(code))):
        return
    names = {"key": _key(function, signature), "function": wrapper, "environment": environment}
    head = json.dumps(names).encode()
    rest = _JSON_SIZE.pack(len(head)) + head + code
    for path in _places(function):
        with suppress(OSError):
            REAL_FILESYSTEM.make_dirs(path.parent)
            write_atomic(path, hashlib.sha256(rest).digest() + rest, durable=False)
            return


def wanted_symbols(code: bytes) -> list[str]:
    """Names that an object wants from outside. ValueError for what is no ELF object of 64 bits."""
    if not code.startswith(_ELF_MAGIC):
        raise ValueError("no ELF object of 64 bits, little-endian")
    at, size, count, _ = _ELF_SECTIONS.unpack_from(code)
    sections = [_SECTION.unpack_from(code, at + n * size) for n in range(count)]
    wanted = []
    for _, kind, _, _, offset, length, strings, *_ in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names_at = sections[strings][4]
        for symbol in range(offset, offset + length, _SYMBOL.size):
            name_at, _, _, section, _, _ = _SYMBOL.unpack_from(code, symbol)
            if section == 0 and name_at:
                end = code.index(0, names_at + name_at)
                wanted.append(code[names_at + name_at : end].decode())
    return wanted


def _is_possible() -> bool:
    return sys.platform == "linux" and sys.implementation.name == "cpython" and sys.byteorder == "little"


def _places(function: Callable[..., Any]) -> Iterator[Path]:
    """Yield the directories of a loop: NUMBA_CACHE_DIR; else that of its source, then the user's own cache."""
    source = Path(function.__code__.co_filename)
    name = f"{source.stem}.{function.__name__}.{_target_name()}.loop"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        yield Path(chosen) / "stratalog" / name
        return
    yield source.parent / "__pycache__" / name
    own = os.environ.get("XDG_CACHE_HOME")
    if not own:
        try:
            own = str(Path.home() / ".cache")
        except RuntimeError:  # of a user without a home, as in a container under any number
            return
    yield Path(own) / "stratalog" / hashlib.sha256(bytes(source.parent)).hexdigest()[:16] / name


@cache
def _target() -> str:
    """Return what compiled code is for: its processor, and what loads and calls it."""
    import llvmlite  # start-up cost
    from llvmlite import binding

    cpu = os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        features = binding.get_host_cpu_features().flatten()
    return f"{platform.machine()} {cpu} {features} {llvmlite.__version__} {sys.version}"


@cache
def _target_name() -> str:
    return hashlib.sha256(_target().encode()).hexdigest()[:12]


@cache
def _sources() -> str:
    """Return times and sizes of the sources of all loops together: a loop has parts of several."""
    root = Path(__file__).parents[3]
    modules = sorted({*SHARED, *(module for modules in KERNELS.values() for module in modules)})
    found = [(root / Path(*module.split("."))).with_suffix(".py").stat() for module in modules]
    return " ".join(f"{each.st_mtime_ns}+{each.st_size}" for each in found)


def _key(function: Callable[..., Any], signature: str) -> str:
    source = Path(function.__code__.co_filename).stat()
    text = f"{_target()} {_sources()} {source.st_mtime_ns}+{source.st_size} {function.__qualname__} {signature}"
    return hashlib.sha256(text.encode()).hexdigest()


def _read(data: bytes, key: str) -> tuple[dict[str, str], bytes] | None:
    """Return the names and the object in a file; None unless it is whole and fits."""
    if (
        len(data) < _CHECKSUM_SIZE + _JSON_SIZE.size
        or hashlib.sha256(data[_CHECKSUM_SIZE:]).digest() != data[:_CHECKSUM_SIZE]
    ):
        return None
    (size,) = _JSON_SIZE.unpack_from(data, _CHECKSUM_SIZE)
    begin = _CHECKSUM_SIZE + _JSON_SIZE.size
    names: dict[str, str] = json.loads(data[begin : begin + size])
    code = data[begin + size :]
    return (names, code) if names["key"] == key and all(map(_is_resolved, wanted_symbols(code))) else None


def _is_resolved(symbol: str) -> bool:
    """Return whether the process has a symbol: LLVM ends the process over one that is missing."""
    return symbol in _ERROR_PATH or hasattr(ctypes.pythonapi, symbol) or hasattr(_process(), symbol)


@cache
def _process() -> Any:
    return ctypes.CDLL(None)


@cache
def _engine() -> Any:
    """Return what links objects into the process."""
    from llvmlite import binding  # start-up cost

    binding.check_jit_execution()
    for name, stand_in in _ERROR_PATH.items():
        if binding.address_of_symbol(name) is None:  # numba puts its own there when it is loaded
            binding.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, stand_in), ctypes.c_void_p).value)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine()
    return binding.create_mcjit_compiler(binding.parse_assembly(""), machine)


def _linked(function: Callable[..., Any], names: dict[str, str], code: bytes) -> Callable[..., Any]:
    from llvmlite import binding  # start-up cost

    with COMPILING:
        engine = _engine()
        engine.add_object_file(binding.ObjectFileRef.from_data(code))
        engine.finalize_object()
        address = engine.get_function_address(names["function"])
        place = engine.get_global_value_address(names["environment"])
        ctypes.c_void_p.from_address(place).value = id(_environment)
        method = _Method(function.__name__.encode(), address, _METHOD_FLAGS, (function.__doc__ or "").encode())
        _methods.append(method)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.POINTER(_Method), ctypes.c_void_p, ctypes.py_object]
    loop: Callable[..., Any] = make(ctypes.byref(method), None, function.__module__)
    return loop
