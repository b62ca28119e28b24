"""Unfinished multipart uploads of an S3 bucket, which killed processes leave behind.

They appear in no listing of objects, and cost as much as objects. obstore does not support them, so this module makes
the two requests (ListMultipartUploads, AbortMultipartUpload) itself, signed with Signature Version 4. It needs explicit
keys, from options or the environment. With keys from the machine's role, set a life-cycle rule instead.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen
from xml.etree import ElementTree

from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError
from stratalog.remote.storage.opening import StoreOptions, endpoint_of_environment
from stratalog.util import SYSTEM_CLOCK

_EMPTY_SHA256: Final = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """An unfinished upload, begun at `begun_ms` by the store's clock. `key` is relative to the store's URL."""

    key: str
    upload_id: str
    begun_ms: int


@dataclass(frozen=True, slots=True)
class _Keys:
    access_key_id: str
    secret_access_key: str
    session_token: str | None


class S3Uploads:
    """The pending uploads of one bucket below a prefix."""

    def __init__(self, url: str, options: Mapping[str, str], keys: _Keys) -> None:
        own, rest = StoreOptions.split(options)
        parts = urlsplit(url)
        self.url = url.rstrip("/")
        self._keys = keys
        self._prefix = parts.path.strip("/")
        self._region = rest.get("region") or os.environ.get("AWS_REGION") or "us-east-1"
        endpoint = rest.get("endpoint") or endpoint_of_environment()
        path_style = bool(endpoint) if own.path_style is None else own.path_style
        endpoint = (endpoint or f"https://s3.{self._region}.amazonaws.com").rstrip("/")
        self._base = endpoint
        self._path = f"/{parts.netloc}"
        if not path_style:
            scheme, _, host = endpoint.partition("://")
            self._base, self._path = f"{scheme}://{parts.netloc}.{host}", ""
        self._timeout_s = own.timeout_ms / 1000
        self._tls: ssl.SSLContext | None = None
        if endpoint.startswith("https"):
            self._tls = ssl.create_default_context(cafile=own.root_certificate_file or None)
            if own.allow_invalid_certificates:
                self._tls.check_hostname = False
                self._tls.verify_mode = ssl.CERT_NONE

    @classmethod
    def of(cls, url: str, options: Mapping[str, str]) -> S3Uploads | None:
        """Return None for other stores, and without keys to sign with.

        The options are those of the object store.
        """
        if not url.startswith(("s3://", "s3a://")):
            return None
        given = {name.lower().removeprefix("aws_"): value for name, value in options.items()}
        access = given.get("access_key_id") or os.environ.get("AWS_ACCESS_KEY_ID")
        secret = given.get("secret_access_key") or os.environ.get("AWS_SECRET_ACCESS_KEY")
        token = given.get("session_token") or os.environ.get("AWS_SESSION_TOKEN")
        return cls(url, options, _Keys(access, secret, token)) if access and secret else None

    def list(self) -> Iterator[PendingUpload]:
        """Yield all of them, one page at a time. Raises RemoteStorageError."""
        marker: dict[str, str] = {}
        while True:
            prefix = {"prefix": f"{self._prefix}/"} if self._prefix else {}
            page = self._parse(self._request("GET", self._path or "/", {"uploads": "", **prefix, **marker}))
            for upload in page.iter("Upload"):
                key, upload_id = upload.findtext("Key", ""), upload.findtext("UploadId", "")
                if key.startswith(f"{self._prefix}/" if self._prefix else ""):
                    own = key[len(self._prefix) + 1 :] if self._prefix else key
                    yield PendingUpload(own, upload_id, _time_ms(upload.findtext("Initiated", "")))
            if page.findtext("IsTruncated") != "true":
                return
            following = page.findtext("NextKeyMarker") or "", page.findtext("NextUploadIdMarker") or ""
            if following == (marker.get("key-marker"), marker.get("upload-id-marker")) or not any(following):
                return
            marker = dict(zip(("key-marker", "upload-id-marker"), following, strict=True))

    def abort(self, upload: PendingUpload) -> None:
        """Abort an upload and remove its parts. A missing one is no error. Raises RemoteStorageError."""
        key = f"{self._prefix}/{upload.key}" if self._prefix else upload.key
        self._request(
            "DELETE",
            f"{self._path}/{quote(key, safe='/-_.~')}",
            {"uploadId": upload.upload_id},
            gone_is_fine=True,
        )

    def _parse(self, body: bytes) -> ElementTree.Element:
        try:
            root = ElementTree.fromstring(body)
        except ElementTree.ParseError as error:
            raise RemoteStorageError(f"list uploads of {self.url}: the answer is not XML: {error}") from error
        for element in root.iter():  # names without the namespace, which some servers omit
            element.tag = element.tag.rpartition("}")[2]
        return root

    def _request(self, method: str, path: str, query: Mapping[str, str], *, gone_is_fine: bool = False) -> bytes:
        text = "&".join(
            f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query.items())
        )
        headers = self._signed(method, path, text)
        request = Request(f"{self._base}{path}?{text}", method=method, headers=headers)
        try:
            with urlopen(request, timeout=self._timeout_s, context=self._tls) as answer:
                body: bytes = answer.read()
                return body
        except HTTPError as error:
            if error.code == 404 and gone_is_fine:
                return b""
            kind = RetriableRemoteStorageError if error.code >= 500 or error.code == 429 else RemoteStorageError
            raise kind(f"uploads of {self.url}: the store answered {error.code}") from error
        except (URLError, OSError) as error:
            why = error.reason if isinstance(error, URLError) else error
            raise RetriableRemoteStorageError(f"uploads of {self.url}: the store cannot be reached: {why}") from error

    def _signed(self, method: str, path: str, query: str) -> dict[str, str]:
        """Return headers with a signature over method, path, query and themselves."""
        now = datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() / 1000, UTC)
        at, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        headers = {
            "host": urlsplit(self._base).netloc,
            "x-amz-content-sha256": _EMPTY_SHA256,
            "x-amz-date": at,
        }
        if self._keys.session_token:
            headers["x-amz-security-token"] = self._keys.session_token
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        canonical = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{_EMPTY_SHA256}"
        scope = f"{day}/{self._region}/s3/aws4_request"
        to_sign = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self._keys.secret_access_key}".encode()
        for part in (day, self._region, "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
        credential = f"Credential={self._keys.access_key_id}/{scope}"
        headers["authorization"] = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signature}"
        return headers


def _time_ms(text: str) -> int:
    """Return a timestamp in ms. One that cannot be parsed counts as now, so the upload is never considered stale."""
    try:
        return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)
    except ValueError:
        return SYSTEM_CLOCK.now_ms()
