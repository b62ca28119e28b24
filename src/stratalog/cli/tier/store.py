"""The bucket of a `tier` command: a URL, options of the store, and the environment."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

import typer

from stratalog.cli.option_groups import OptionGroup
from stratalog.cli.options import RemoteOptions, key_values
from stratalog.cli.out import notice
from stratalog.errors import UsageError
from stratalog.remote.storage import ObjectStore, PlainView, S3Uploads, open_bucket, parse_topic_directory

_SCHEMES = ("s3", "s3a", "gs", "az", "abfss", "file", "memory")

UrlArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[URL]",
        show_default=False,
        help="The bucket: s3://bucket/prefix, gs://, az://, file:///directory or a directory.",
    ),
]
RemoteInstead = Annotated[str | None, typer.Option("--remote", metavar="URL", help="Same as URL.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketOptions(OptionGroup):
    """The bucket of a command, and how it is reached."""

    url: UrlArgument = None
    remote: RemoteInstead = None
    remote_option: RemoteOptions = None

    @property
    def given_url(self) -> str:
        """The URL that was given as an argument or as --remote. Raises UsageError for none and for two."""
        if (self.url is None) == (self.remote is None):
            raise UsageError("give the bucket once, either as URL or as --remote URL")
        return self.url or self.remote or ""

    def open(self) -> PlainView:
        """Open the store as `open_store` does."""
        return open_store(self.given_url, self.remote_option)

    def open_uploads(self) -> S3Uploads | None:
        """Return the uploads that were never finished in the store, where they can be asked for."""
        return S3Uploads.of(self.given_url, key_values("--remote-option", self.remote_option))


def require_url_form(url: str) -> None:
    """Raise UsageError for a misspelt URL, such as s3//bucket or s3:/bucket, which would count as a directory."""
    meant = re.fullmatch(r"(\w+):?/+(.*)", url)
    if meant is not None and "://" not in url and meant[1] in _SCHEMES:
        scheme, rest = meant.groups()
        raise UsageError(f"{url}: neither a URL nor a directory; did you mean {scheme}://{rest}?")


def open_store(url: str, options: Iterable[str] | None) -> PlainView:
    """Return the store at `url`, contacted once. Raises UsageError or RemoteStorageError, in one line.

    `options` are KEY=VALUE; other values come from the environment (AWS_*). `encryption.key.file` and
    `aiven.encryption.key.file` name the keys of encrypted objects. A missing directory is an error.
    """
    store_options = key_values("--remote-option", options)
    require_url_form(url)
    if "://" not in url:
        url = Path(url).absolute().as_uri()
    directory = unquote(urlsplit(url).path)
    if url.startswith("file://") and not Path(directory).is_dir():
        raise UsageError(f"{url}: no such directory")
    store = open_bucket(url, store_options)
    store.check()
    return store


def topics_in(store: ObjectStore) -> set[str]:
    """Return the names of the topics that have a directory in the store: one listing."""
    found = (parse_topic_directory(name) for name in store.list_level("").directories)
    return {name for name in found if name is not None}


def say_empty(url: str) -> None:
    """Say on stderr that there is nothing to list, so that no output is not taken for an answer."""
    notice(f"{url}: no tiered topics found")
