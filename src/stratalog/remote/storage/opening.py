"""Create an object store from a URL and options."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from stratalog.errors import UsageError
from stratalog.remote.storage.object_store import ObstoreObjectStore
from stratalog.remote.storage.store_errors import first_line
from stratalog.util import REAL_FILESYSTEM, FileSystem


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Our own options. All others are obstore's."""

    timeout_ms: int = 30_000
    connect_timeout_ms: int = 5_000
    retry_timeout_ms: int = 60_000
    max_retries: int = 3
    path_style: bool | None = None
    allow_http: bool | None = None
    allow_invalid_certificates: bool = False
    root_certificate_file: str | None = None
    #: For a local store: whether a deletion removes directories that become empty.
    remove_empty_directories: bool = False

    @classmethod
    def split(cls, options: Mapping[str, str]) -> tuple[StoreOptions, dict[str, str]]:
        """Return our options, and all others. UsageError for an invalid value."""
        own: dict[str, Any] = {}
        rest: dict[str, str] = {}
        for raw_name, value in options.items():
            name = raw_name.replace(".", "_")
            if name not in cls.__slots__:
                rest[name] = value
            elif name.endswith("_ms") or name == "max_retries":
                own[name] = _to_int(raw_name, value)
            elif name == "root_certificate_file":
                own[name] = value
            else:
                own[name] = _to_bool(raw_name, value)
        return cls(**own), rest


def _to_int(name: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = -1
    if number < 0:
        raise UsageError(f"object store option {name}={value}: expected a number that is not negative")
    return number


def _to_bool(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise UsageError(f"object store option {name}={value}: expected true or false")
    return value.lower() == "true"


_memory_stores: dict[str, Any] = {}
_memory_stores_lock = threading.Lock()


def open_store(url: str, options: Mapping[str, str], fs: FileSystem) -> ObstoreObjectStore:
    try:
        parts = urlsplit(url)
    except ValueError:  # whose text may show a password
        raise UsageError("expected an object store URL such as s3://bucket/prefix: what is given is none") from None
    own, rest = StoreOptions.split(options)
    base = url.rstrip("/")
    if parts.scheme == "file":
        _refuse(rest, url)
        return _open_directory(base, parts.netloc, unquote(parts.path), own, fs)
    if parts.scheme == "memory":
        _refuse(rest, url)
        return ObstoreObjectStore(_memory_store((parts.netloc + parts.path).strip("/")), base)
    if parts.scheme in ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https"):
        return ObstoreObjectStore(_network_store(url, parts.scheme, own, rest), base)
    raise UsageError(
        f"{url} is not an object store URL: expected file:///directory, s3://bucket/prefix, gs:// or az://"
    )


def _refuse(rest: Mapping[str, str], url: str) -> None:
    if rest:
        raise UsageError(f"{url} takes no option {sorted(rest)[0]}")


def _open_directory(url: str, host: str, path: str, own: StoreOptions, fs: FileSystem) -> ObstoreObjectStore:
    from obstore.store import LocalStore  # start-up cost

    if host or not path.startswith("/"):
        raise UsageError(f"{url}: expected file:/// and an absolute path")
    directory = Path(path)
    try:
        fs.make_dirs(directory)
        directory = directory.resolve()
        return ObstoreObjectStore(
            LocalStore(directory, automatic_cleanup=own.remove_empty_directories), url, directory=directory, fs=fs
        )
    except OSError as error:
        raise UsageError(f"{url}: the directory cannot be used: {error.strerror or error}") from error


def _memory_store(name: str) -> Any:
    """Return the store of this name in this process. One without a name is always new."""
    from obstore.store import MemoryStore  # start-up cost

    if not name:
        return MemoryStore()
    with _memory_stores_lock:
        return _memory_stores.setdefault(name, MemoryStore())


def endpoint_of_environment() -> str | None:
    """Return the S3 server from the environment."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _network_store(url: str, scheme: str, own: StoreOptions, rest: dict[str, str]) -> Any:
    from obstore.exceptions import BaseError  # start-up cost
    from obstore.store import from_url

    s3 = scheme in ("s3", "s3a")
    if s3 and "endpoint" not in rest and (named := endpoint_of_environment()):
        rest = {**rest, "endpoint": named}
    endpoint = rest.get("endpoint", "")
    client: dict[str, Any] = {
        "timeout": timedelta(milliseconds=own.timeout_ms),
        "connect_timeout": timedelta(milliseconds=own.connect_timeout_ms),
        # An http:// URL implies plain HTTP.
        "allow_http": endpoint.startswith("http://") if own.allow_http is None else own.allow_http,
    }
    if own.allow_invalid_certificates:
        client["allow_invalid_certificates"] = True
    if own.root_certificate_file:
        client["root_certificate"] = REAL_FILESYSTEM.read_bytes(own.root_certificate_file)
    config: dict[str, Any] = dict(rest)
    if s3:
        path_style = bool(endpoint) if own.path_style is None else own.path_style
        config.setdefault("virtual_hosted_style_request", not path_style)
        config.setdefault("region", "us-east-1")
    retry: Any = {
        "max_retries": own.max_retries,
        "retry_timeout": timedelta(milliseconds=own.retry_timeout_ms),
    }
    open_url: Any = from_url  # obstore checks the options by name
    try:
        return open_url(
            url,
            config=config,
            client_options=client,
            retry_config=retry,
        )
    except (BaseError, ValueError, TypeError) as error:
        raise UsageError(f"{url}: {first_line(str(error))}") from error
