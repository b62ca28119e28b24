"""From the broker's configuration to the object store of the remote tier."""

from __future__ import annotations

from stratalog.config.broker import BrokerConfig

_S3_KEYS = {
    "stratalog.remote.s3.endpoint": "endpoint",
    "stratalog.remote.s3.region": "region",
    "stratalog.remote.s3.access.key.id": "access_key_id",
    "stratalog.remote.s3.secret.access.key": "secret_access_key",
    "stratalog.remote.s3.session.token": "session_token",
    "stratalog.remote.s3.path.style": "path_style",
}


def store_url(config: BrokerConfig, default: str) -> str:
    """Where the remote tier is: `stratalog.remote.url`, or `default`."""
    return config["stratalog.remote.url"] or default


def store_options(config: BrokerConfig, url: str) -> dict[str, str]:
    """Options for `ObjectStore.from_url(url, ...)`; the S3 keys apply to S3 URLs only."""
    options = {"timeout_ms": str(config["stratalog.remote.request.timeout.ms"])}
    if url.startswith(("s3://", "s3a://")):
        for key, option in _S3_KEYS.items():
            if config[key] is not None:
                options[option] = str(config[key])
    return options


def storage_manager_options(config: BrokerConfig, default_url: str) -> dict[str, str]:
    """What `ObjectStoreRemoteStorageManager.configure` wants."""
    url = store_url(config, default_url)
    deadline_ms = config["stratalog.remote.deadline.ms"]
    return {"url": url, "deadline.ms": str(deadline_ms), **store_options(config, url)}
