"""Parse `--add-scram`, as in kafka-storage: SCRAM-SHA-512=[name=alice,password=secret,iterations=8192]."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Final

from stratalog.broker.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_HASHES,
    ScramCredential,
    credential_of_password,
    scram_credential,
)
from stratalog.errors import UsageError

_ARGUMENT: Final = re.compile(r"([\w-]+)=\[(.*)\]", re.DOTALL)
_PART: Final = re.compile(r'\s*([a-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^,"]*))\s*(?:,|$)')
_KNOWN: Final = {"name", "password", "salt", "saltedpassword", "iterations"}


def parse_scram_argument(text: str) -> tuple[str, str, ScramCredential]:
    """Return mechanism, user and credential. UsageError names the problem and shows no password."""
    found = _ARGUMENT.fullmatch(text.strip())
    if found is None or found[1] not in SCRAM_HASHES:
        raise UsageError(f"--add-scram: expected {' or '.join(SCRAM_HASHES)}=[name=...,password=...]")
    mechanism, parts = found[1], _parts(found[2])
    name = parts.get("name", "")
    if not name:
        raise UsageError("--add-scram: name is not set")
    iterations = parts.get("iterations", str(ITERATIONS_MIN))
    if not iterations.isdecimal() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise UsageError(f"--add-scram: iterations={iterations}: expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    if "saltedpassword" in parts:
        if "password" in parts or "salt" not in parts:
            raise UsageError("--add-scram: saltedpassword needs a salt, and excludes password")
        salted = _bytes(parts, "saltedpassword")
        return mechanism, name, scram_credential(mechanism, salted, _bytes(parts, "salt"), int(iterations))
    if not parts.get("password"):
        raise UsageError(f"--add-scram: the password of {name} is not set")
    salt = _bytes(parts, "salt") if "salt" in parts else None
    return mechanism, name, credential_of_password(mechanism, parts["password"], int(iterations), salt)


def _parts(text: str) -> dict[str, str]:
    parts, position = {}, 0
    while position < len(text):
        found = _PART.match(text, position)
        if found is None or found[1] not in _KNOWN:
            raise UsageError(f"--add-scram: expected {', '.join(sorted(_KNOWN))} with values, separated by commas")
        parts[found[1]] = re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else found[3].strip()
        position = found.end()
    return parts


def _bytes(parts: dict[str, str], name: str) -> bytes:
    try:
        return b64decode(parts[name], validate=True)
    except binascii.Error:
        raise UsageError(f"--add-scram: {name} is not base64") from None
