"""Options of the remote tier's object store, from the broker's configuration."""

from __future__ import annotations

from stratalog.config import BrokerConfig

_S3_KEYS = {
    "stratalog.remote.s3.endpoint": "endpoint",
    "stratalog.remote.s3.region": "region",
    "stratalog.remote.s3.access.key.id": "access_key_id",
    "stratalog.remote.s3.secret.access.key": "secret_access_key",
    "stratalog.remote.s3.session.token": "session_token",
    "stratalog.remote.s3.path.style": "path_style",
}

_KEY_FILES = {
    "stratalog.remote.encryption.key.file": "encryption.key.file",
    "stratalog.remote.aiven.encryption.key.file": "aiven.encryption.key.file",
}


def store_url(config: BrokerConfig, default: str) -> str:
    """Return the URL of the remote tier: `stratalog.remote.url`, or `default`."""
    return config["stratalog.remote.url"] or default


def store_options(config: BrokerConfig, url: str) -> dict[str, str]:
    """Return options for `plain_view.open_bucket(url, ...)`. The S3 keys apply to S3 URLs only."""
    options = {"timeout_ms": str(config["stratalog.remote.request.timeout.ms"])}
    if url.startswith(("s3://", "s3a://")):
        for key, option in _S3_KEYS.items():
            if config[key] is not None:
                options[option] = str(config[key])
    return options


def read_key_options(config: BrokerConfig) -> dict[str, str]:
    """Return the options with key files, as for `layouts.ReadKeys`."""
    return {option: str(config[key]) for key, option in _KEY_FILES.items() if config[key]}


def storage_manager_options(config: BrokerConfig, default_url: str) -> dict[str, str]:
    """Return the options of `ObjectStoreRemoteStorageManager.configure`."""
    url = store_url(config, default_url)
    deadline_ms = config["stratalog.remote.deadline.ms"]
    encoding = {"compression": str(config["stratalog.remote.compression"]), **read_key_options(config)}
    return {"url": url, "deadline.ms": str(deadline_ms), **encoding, **store_options(config, url)}
