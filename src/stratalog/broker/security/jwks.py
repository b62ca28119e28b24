"""Keys that sign tokens (JWKS, RFC 7517), from a file or a URL: read at startup and refreshed periodically.

A failed read is logged in one line and leaves the current keys in force.
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
#: Minimum time between two reads because of tokens with unknown keys.
_UNKNOWN_EVERY_S: Final = 10.0


#: OSError covers urllib's errors; a server that does not speak HTTP raises HTTPException.
_FAILURES: Final = (OSError, ValueError, http.client.HTTPException)


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, except from https to an unencrypted URL."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.type == "https" and not newurl.startswith("https:"):
            raise ValueError(f"it redirects to {newurl}, which is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class SigningKeys:
    """Keys by id. InvalidConfigError if there are none at startup. Read on the loop, refreshed on a thread."""

    def __init__(self, url: str, refresh_s: float, where: str, clock: Callable[[], float]) -> None:
        try:
            has_user = "@" in urllib.parse.urlsplit(url).netloc
        except ValueError:  # whose text may show a password
            raise InvalidConfigError(f"{where}: expected a URL such as https://HOST/keys") from None
        if has_user:
            raise InvalidConfigError(f"{where}: expected a URL without user and password, which would appear in logs")
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
        """Return the key of a token; None for an unknown one. It may be known after the refresh that this starts."""
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
            logger.error("%s: no keys can be read, the current ones stay in force: %s", self._url, error)
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
        # A symmetric key would let anyone who can verify tokens also sign them.
        keys = {key.key_id: key for key in found.keys if key.key_type != "oct"}
        if not keys:
            raise ValueError("expected public keys")
        return keys
