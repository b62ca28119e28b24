"""Keys that sign tokens (JWKS, RFC 7517), from a file or a URL: read at the start, and again in time.

A read that fails leaves the keys in force, with one line in the log.
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from stratalog.errors import InvalidConfigError
from stratalog.util import REAL_FILESYSTEM

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 10.0
_BYTES_MAX: Final = 1024 * 1024
#: A token with a key that is not known asks for another read at most this often.
_UNKNOWN_EVERY_S: Final = 10.0


#: OSError is that of urllib too; a server that speaks no HTTP has errors of its own.
_FAILURES: Final = (OSError, ValueError, http.client.HTTPException)


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect, but not from https to what anybody on the way could change."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.type == "https" and not newurl.startswith("https:"):
            raise ValueError(f"it leads to {newurl}, which anybody on the way could change")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class SigningKeys:
    """Keys by id. InvalidConfigError, at the start, when there are none. Read by the loop, renewed by a thread."""

    def __init__(self, url: str, refresh_s: float, where: str, clock: Callable[[], float]) -> None:
        if "@" in urllib.parse.urlsplit(url).netloc:
            raise InvalidConfigError(f"{where}: expected a URL without user and password, which would be shown in logs")
        self._url = url
        self._refresh_s = refresh_s
        self._clock = clock
        self._renewing = threading.Lock()
        try:
            self._keys = self._read()
        except _FAILURES as error:
            raise InvalidConfigError(f"{where}={url}: no keys can be read: {error}") from None
        self._read_at = clock()

    def get(self, key_id: str | None) -> Any | None:
        """Return the key of a token; None for one that is not known, which may be known a little later."""
        keys = self._keys
        found = keys.get(key_id) if key_id is not None else next(iter(keys.values())) if len(keys) == 1 else None
        age = self._clock() - self._read_at
        if age > (self._refresh_s if found is not None else min(_UNKNOWN_EVERY_S, self._refresh_s)):
            self._renew()
        return found

    def _renew(self) -> None:
        if self._renewing.acquire(blocking=False):
            self._read_at = self._clock()
            threading.Thread(target=self._read_again, name="stratalog-jwks", daemon=True).start()

    def _read_again(self) -> None:
        try:
            self._keys = self._read()
        except _FAILURES as error:
            logger.error("%s: no keys can be read, the earlier ones stay in force: %s", self._url, error)
        finally:
            self._renewing.release()

    def _read(self) -> dict[str | None, Any]:
        import jwt  # an optional dependency

        parts = urllib.parse.urlsplit(self._url)
        if parts.scheme == "file":
            text = REAL_FILESYSTEM.read_bytes(Path(urllib.request.url2pathname(parts.path)))
        elif parts.scheme in ("http", "https"):
            with urllib.request.build_opener(_SafeRedirects).open(self._url, timeout=_TIMEOUT_S) as answer:
                text = answer.read(_BYTES_MAX)
        else:
            raise ValueError("expected a URL that begins with file:, https: or http:")
        try:
            found = jwt.PyJWKSet.from_dict(json.loads(text))
        except (jwt.PyJWTError, AttributeError, TypeError, KeyError) as error:
            raise ValueError(f"expected a JSON Web Key Set ({error})") from None
        # A key that both sides know would let everybody who can check tokens make them.
        keys = {key.key_id: key for key in found.keys if key.key_type != "oct"}
        if not keys:
            raise ValueError("expected public keys")
        return keys
