"""CRC-32C (Castagnoli) in hardware, over any contiguous buffer, without the interpreter lock."""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

from typing_extensions import Buffer


def _extension() -> Any:
    """Return the extension of the `crc32c` package alone.

    The package also loads its command line and its version, with argparse, email and zipfile: 12 ms of each start.
    """
    package = find_spec("crc32c")
    spec = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return import_module("crc32c")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_native: Any = _extension().crc32c


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the CRC-32C of `data`, continued from `value`, as an unsigned 32-bit int."""
    checksum: int = _native(data, value)
    return checksum
