"""The web address of a broker, asked for the JSON of its pages."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from stratalog.cli.connection import ClusterOptions
from stratalog.cli.escapes import visible
from stratalog.errors import UsageError
from stratalog.wire.client import UnreachableError

_TIMEOUT_S: Final = 30.0
_FORBIDDEN: Final = 403
_NO_LOGIN: Final = 401
_STOPPING: Final = range(500, 600)


class NotAllowedError(UnreachableError):
    """The broker's access rules refuse this to the user."""


class NotOursError(UsageError):
    """The server is not stratalog's web address, or asks for another login. Retrying does not help."""


class WebAddress:
    """Asks one web address. `login` is a user of the broker with the password."""

    def __init__(self, address: str, login: tuple[str, str] | None = None, timeout_s: float = _TIMEOUT_S) -> None:
        url = address if "://" in address else f"http://{address}"
        try:
            parts = urlsplit(url)
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number, brackets without an address
            is_usable = False
        if not is_usable or not url.isprintable() or " " in url:
            raise UsageError(f"--web {address}: expected HOST:PORT")
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"Accept": "application/json"}
        if login is not None:
            self._headers["Authorization"] = "Basic " + base64.b64encode(":".join(login).encode()).decode()

    def get(self, path: str, fields: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Return an answer, an object. `path` begins with a slash. Raises UnreachableError or NotOursError."""
        where = self.url + path
        asked = f"{where}?{urlencode(fields)}" if fields else where
        try:
            with urlopen(Request(asked, headers=self._headers), timeout=self._timeout_s) as answer:
                data = answer.read()
        except HTTPError as error:
            raise _refused(where, error) from error
        except (URLError, OSError) as error:
            why = error.reason if isinstance(error, URLError) else error
            raise UnreachableError(f"cannot reach {where}: {getattr(why, 'strerror', None) or why}") from error
        except IncompleteRead as error:
            raise UnreachableError(f"{where} ended in the middle of its answer") from error
        except HTTPException as error:
            raise NotOursError(f"{where} does not answer like a stratalog broker") from error
        try:
            found = json.loads(data, parse_constant=_refuse)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise NotOursError(f"{where} does not answer like a stratalog broker")
        return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def login_of_file(command_config: Path | None) -> tuple[str, str] | None:
    """Return the user and password of Kafka's client properties, for the web address; None where it has none."""
    if command_config is None:
        return None
    sasl = ClusterOptions(bootstrap_server="localhost", command_config=command_config).connection().sasl
    return None if sasl is None or sasl.login is not None else (sasl.username, sasl.password)


def _refused(where: str, error: HTTPError) -> UsageError:
    with error:
        said = visible(_reason(error))
    if error.code == _NO_LOGIN:
        return NotOursError(f"{where} asks for a user of the broker: give --command-config with sasl.jaas.config")
    if error.code == _FORBIDDEN:
        return NotAllowedError(f"{where} refuses: {said or 'the access rules do not allow it'}")
    if error.code in _STOPPING:
        return UnreachableError(f"{where} answers with status {error.code}{f': {said}' if said else ''}")
    return NotOursError(f"{where} answers with status {error.code}")


def _reason(error: HTTPError) -> str:
    try:
        found = json.loads(error.read())
        return str(found["error"]) if isinstance(found, dict) and "error" in found else ""
    except (ValueError, OSError, HTTPException):
        return ""
