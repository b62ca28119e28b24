"""Translate the plugin's storage backend options (`storage.*`) into a URL and options of our object stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stratalog.errors import UsageError
from stratalog.remote.storage.aiven.options import PluginOptions
from stratalog.util import FileSystem

_PACKAGE: Final = "io.aiven.kafka.tieredstorage.storage."
BACKEND_CLASS: Final = "storage.backend.class"
FILE_SYSTEM: Final = f"{_PACKAGE}filesystem.FileSystemStorage"
S3: Final = f"{_PACKAGE}s3.S3Storage"
AZURE: Final = f"{_PACKAGE}azure.AzureBlobStorage"

#: Options of the plugin's own clients without an equivalent here.
_WITHOUT_EFFECT: Final = (
    "storage.overwrite.enabled",
    "storage.s3.multipart.upload.part.size",
    "storage.s3.legacy.md5.plugin.enabled",
    "storage.aws.checksum.check.enabled",
    "storage.azure.upload.block.size",
)
_AWS_PROVIDERS: Final = "software.amazon.awssdk.auth.credentials."
#: Sources of credentials that our client also uses.
_KNOWN_PROVIDERS: Final = frozenset(
    _AWS_PROVIDERS + name
    for name in (
        "DefaultCredentialsProvider",
        "EnvironmentVariableCredentialsProvider",
        "InstanceProfileCredentialsProvider",
        "ContainerCredentialsProvider",
        "WebIdentityTokenFileCredentialsProvider",
        "StaticCredentialsProvider",
    )
)


@dataclass(frozen=True, slots=True)
class Backend:
    """URL and options for `ObjectStore.from_url`."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def backend_of(options: PluginOptions, fs: FileSystem) -> Backend:
    """Return the configured backend. UsageError names the unusable key and what to do."""
    options.without_effect(_WITHOUT_EFFECT)
    kinds = {FILE_SYSTEM: _file_system, S3: _s3, AZURE: _azure}
    name = options.required(BACKEND_CLASS)
    kind = kinds.get(name)
    if kind is None:
        raise UsageError(f"{BACKEND_CLASS}={name} is unknown: expected one of {', '.join(kinds)}")
    return kind(options, fs)


def _file_system(options: PluginOptions, fs: FileSystem) -> Backend:
    root = Path(options.required("storage.root"))
    if not fs.is_dir(root):
        raise UsageError(f"storage.root={root} is not a directory: create or mount it first")
    return Backend(root.absolute().as_uri(), {"remove_empty_directories": "true"})


def _s3(options: PluginOptions, _: FileSystem) -> Backend:
    found = {
        **_given(options, {"region": "storage.s3.region"}, required=True),
        **_given(
            options,
            {
                "endpoint": "storage.s3.endpoint.url",
                "access_key_id": "storage.aws.access.key.id",
                "secret_access_key": "storage.aws.secret.access.key",
                "session_token": "storage.aws.session.token",
            },
        ),
    }
    if ("access_key_id" in found) != ("secret_access_key" in found):
        raise UsageError("storage.aws.access.key.id and storage.aws.secret.access.key must be set together")
    if (path_style := options.boolean("storage.s3.path.style.access.enabled", None)) is not None:
        found["path_style"] = str(path_style).lower()
    if not options.boolean("storage.aws.certificate.check.enabled", default=True):
        found["allow_invalid_certificates"] = "true"
    for option, key in (
        ("retry_timeout_ms", "storage.s3.api.call.timeout"),
        ("timeout_ms", "storage.s3.api.call.attempt.timeout"),
    ):
        if options.take(key) is not None:
            found[option] = str(options.number(key, least=1))
    storage_class = options.take("storage.s3.storage.class") or "STANDARD"
    if storage_class != "STANDARD":
        raise UsageError(
            f"storage.s3.storage.class={storage_class}: only STANDARD is supported; set that, and add a "
            "life-cycle rule to the bucket to move objects"
        )
    provider = options.take("storage.aws.credentials.provider.class")
    if provider is not None and provider not in _KNOWN_PROVIDERS:
        raise UsageError(
            f"storage.aws.credentials.provider.class={provider} is not known: give the keys as "
            "storage.aws.access.key.id and storage.aws.secret.access.key, or omit it for the environment or the "
            "machine's role"
        )
    if options.take("storage.aws.credentials.file") is not None:
        raise UsageError(
            "storage.aws.credentials.file is not supported: give the keys as storage.aws.access.key.id and "
            "storage.aws.secret.access.key, or use the machine's role"
        )
    return Backend(f"s3://{options.required('storage.s3.bucket.name')}", found)


def _azure(options: PluginOptions, _: FileSystem) -> Backend:
    if options.take("storage.azure.connection.string") is not None:
        raise UsageError(
            "storage.azure.connection.string is not supported: give storage.azure.account.name and "
            "storage.azure.account.key or storage.azure.sas.token"
        )
    found = _given(
        options,
        {
            "account_name": "storage.azure.account.name",
            "account_key": "storage.azure.account.key",
            "sas_key": "storage.azure.sas.token",
            "endpoint": "storage.azure.endpoint.url",
        },
    )
    return Backend(f"az://{options.required('storage.azure.container.name')}", found)


def _given(options: PluginOptions, names: Mapping[str, str], *, required: bool = False) -> dict[str, str]:
    """Return store options for the plugin's keys that are set."""
    values = {name: options.required(key) if required else options.take(key) for name, key in names.items()}
    return {name: value for name, value in values.items() if value is not None}
