"""`--key-decoder-class` and `--value-decoder-class`.

Kafka's own four decoders by their Java names, or a Python function.

Other Java classes cannot be loaded without a JVM and are refused.
"""

from __future__ import annotations

import base64
import importlib
import struct
from collections.abc import Callable
from typing import Any, Final

from stratalog.cli.dump.java_text import plain_text
from stratalog.errors import UsageError

FieldDecoder = Callable[[bytes], str | None]

_PACKAGE: Final = "org.apache.kafka.tools.api."


def field_decoder(name: str | None) -> FieldDecoder:
    """Return the decoder of keys or values; None means UTF-8. Raises UsageError for a class that cannot be loaded."""
    if name is None:
        return plain_text
    builtin = _BUILTIN.get(name.removeprefix(_PACKAGE))
    if builtin is not None:
        return builtin
    if ":" in name:
        return _python_function(name)
    known = ", ".join(_PACKAGE + short for short in _BUILTIN)
    raise UsageError(
        f"decoder class {name}: Java classes cannot be loaded; known decoders are {known}. Give a Python function "
        "(module:function) that takes bytes and returns text, or decode the bytes that --json prints"
    )


def _integer(data: bytes) -> str:
    return str(struct.unpack_from(">i", data)[0])


def _long(data: bytes) -> str:
    return str(struct.unpack_from(">q", data)[0])


def _bytes(data: bytes) -> str:
    """Return base64; Kafka's tool prints the identity of a Java array."""
    return base64.b64encode(data).decode()


_BUILTIN: Final[dict[str, FieldDecoder]] = {
    "StringDecoder": plain_text,
    "IntegerDecoder": _integer,
    "LongDecoder": _long,
    "DefaultDecoder": _bytes,
}


def _python_function(name: str) -> FieldDecoder:
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"decoder {name}: {error}") from None
    if not callable(found):
        raise UsageError(f"decoder {name}: expected a function, not {type(found).__name__}")

    def decode(data: bytes) -> str | None:
        decoded = found(data)
        return decoded if decoded is None or isinstance(decoded, str) else str(decoded)

    return decode
