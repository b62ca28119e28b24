"""From the broker's configuration to the object store of the remote tier."""

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
    """Return where the remote tier is: `stratalog.remote.url`, or `default`."""
    return config["stratalog.remote.url"] or default


def store_options(config: BrokerConfig, url: str) -> dict[str, str]:
    """Options for `plain_view.open_bucket(url, ...)`; the S3 keys apply to S3 URLs only."""
    options = {"timeout_ms": str(config["stratalog.remote.request.timeout.ms"])}
    if url.startswith(("s3://", "s3a://")):
        for key, option in _S3_KEYS.items():
            if config[key] is not None:
                options[option] = str(config[key])
    return options


def read_key_options(config: BrokerConfig) -> dict[str, str]:
    """Options that name the files of keys, as `layouts.ReadKeys` takes them."""
    return {option: str(config[key]) for key, option in _KEY_FILES.items() if config[key]}


def storage_manager_options(config: BrokerConfig, default_url: str) -> dict[str, str]:
    """Return what `ObjectStoreRemoteStorageManager.configure` wants."""
    url = store_url(config, default_url)
    deadline_ms = config["stratalog.remote.deadline.ms"]
    encoding = {"compression": str(config["stratalog.remote.compression"]), **read_key_options(config)}
    return {"url": url, "deadline.ms": str(deadline_ms), **encoding, **store_options(config, url)}
