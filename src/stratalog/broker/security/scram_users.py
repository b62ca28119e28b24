"""The SCRAM credentials of all users, in the metadata store: read at startup, changed by AlterUserScramCredentials."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from stratalog.broker.security.scram import SCRAM_HASHES, ScramCredential

_KIND: Final = "scram"


class CredentialStore(Protocol):
    """Keeps credentials by kind and name."""

    def credentials(self, kind: str) -> dict[str, str]: ...

    def change_credentials(self, kind: str, changes: Mapping[str, str | None]) -> None: ...


class ScramUsers:
    """Credentials by mechanism and name. Reads do not block; a change is durable when it returns. Thread-safe."""

    def __init__(self, store: CredentialStore) -> None:
        self._store = store
        self._found: dict[tuple[str, str], ScramCredential] = {}
        self.read()

    def read(self) -> None:
        """Load the credentials of the store."""
        self._found = {_parse_name(name): _parse(value) for name, value in self._store.credentials(_KIND).items()}

    def get(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._found.get((mechanism, user))

    def users(self) -> list[str]:
        """Return all users with a credential, sorted."""
        return sorted({user for _, user in self._found})

    def of_user(self, user: str) -> Mapping[str, ScramCredential]:
        """Return one user's credentials by mechanism."""
        return {mechanism: found for (mechanism, name), found in sorted(self._found.items()) if name == user}

    def change(self, put: Mapping[tuple[str, str], ScramCredential], remove: Iterable[tuple[str, str]] = ()) -> None:
        """Put and remove credentials, by mechanism and name, in one change."""
        gone = set(remove)
        self._store.change_credentials(
            _KIND, {**dict.fromkeys(map(_name, gone)), **{_name(key): _text(found) for key, found in put.items()}}
        )
        self._found = {**{key: found for key, found in self._found.items() if key not in gone}, **put}


def check_stored_user(name: str, text: str) -> None:
    """Raise ValueError or TypeError for an invalid credential of a store."""
    mechanism, user = _parse_name(name)
    if mechanism not in SCRAM_HASHES or not user:
        raise ValueError("not MECHANISM/USER")
    _parse(text)


def _name(key: tuple[str, str]) -> str:
    return "/".join(key)


def _parse_name(name: str) -> tuple[str, str]:
    mechanism, _, user = name.partition("/")
    return mechanism, user


def _text(found: ScramCredential) -> str:
    parts = (found.salt, found.stored_key, found.server_key)
    return json.dumps([*(b64encode(part).decode() for part in parts), found.iterations])


def _parse(text: str) -> ScramCredential:
    salt, stored_key, server_key, iterations = json.loads(text)
    return ScramCredential(b64decode(salt), b64decode(stored_key), b64decode(server_key), int(iterations))
