"""The plugin's own configuration (`rsm.config.*`), as in the server.properties of a broker with the plugin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from stratalog.errors import UsageError
from stratalog.remote.storage.aiven.backends import Backend, backend_of
from stratalog.remote.storage.aiven.custom_metadata import CustomField
from stratalog.remote.storage.aiven.data_keys import DataKeys, SealingKey, read_private_key, read_public_key
from stratalog.remote.storage.aiven.options import PluginOptions
from stratalog.remote.storage.aiven.writer import AivenEncoding, CompressionRule
from stratalog.remote.storage.keyring import require_cryptography
from stratalog.util import REAL_FILESYSTEM, FileSystem

#: The plugin's value of `remote.log.storage.manager.class.name`.
PLUGIN_CLASS: Final = "io.aiven.kafka.tieredstorage.RemoteStorageManager"

_CHUNK_BYTES_MAX: Final = (2**31 - 1) // 2
_CACHES: Final = ("fetch.chunk.cache.", "fetch.indexes.cache.", "fetch.manifest.cache.", "metrics.")
_FETCH: Final = ("fetch.chunk.cache.class",)
_PREFIX: Final = re.compile(r"[A-Za-z0-9!_.()=@:,$&+;/-]*")
_PAIRS: Final = "encryption.key.pairs"


@dataclass(frozen=True, slots=True)
class AivenSettings:
    """Settings of the storage manager. `key_prefix` precedes every key unchanged."""

    backend: Backend
    encoding: AivenEncoding
    key_prefix: str = ""
    masks_prefix: bool = False
    custom_fields: frozenset[CustomField] = frozenset()
    data_keys: DataKeys = field(default_factory=DataKeys)

    @classmethod
    def of(cls, configs: Mapping[str, str], fs: FileSystem = REAL_FILESYSTEM) -> AivenSettings:
        """Parse. UsageError names a missing, unknown or unusable key."""
        options = PluginOptions(configs)
        segment_format = (options.take("segment.format") or "kafka").lower()
        if segment_format != "kafka":
            raise UsageError(f"segment.format={segment_format}: this broker writes kafka only")
        if options.take("upload.rate.limit.bytes.per.second") is not None:
            raise UsageError(
                "upload.rate.limit.bytes.per.second is not supported: set "
                "remote.log.manager.copy.max.bytes.per.second in its place"
            )
        options.without_effect(_FETCH, _CACHES)
        sealing_key, data_keys = _keys(options, fs)
        chunk_bytes = options.number("chunk.size", least=1, largest=_CHUNK_BYTES_MAX)
        settings = cls(
            backend_of(options, fs),
            AivenEncoding(chunk_bytes, _compression(options), sealing_key),
            _key_prefix(options),
            bool(options.boolean("key.prefix.mask")),
            _custom_fields(options),
            data_keys,
        )
        options.refuse_the_rest()
        return settings


def _compression(options: PluginOptions) -> CompressionRule:
    enabled = options.boolean("compression.enabled")
    heuristic = options.boolean("compression.heuristic.enabled")
    if heuristic and not enabled:
        raise UsageError("compression.enabled must be true if compression.heuristic.enabled is")
    if not enabled:
        return CompressionRule.NEVER
    return CompressionRule.UNLESS_COMPRESSED if heuristic else CompressionRule.ALWAYS


def _key_prefix(options: PluginOptions) -> str:
    prefix = options.take("key.prefix") or ""
    parts = prefix.split("/")
    if not _PREFIX.fullmatch(prefix) or any(part in ("", ".", "..") for part in parts[:-1]):
        raise UsageError(
            f"key.prefix={prefix}: expected letters, digits and !_.()=@:,$&+;- in directories that are not empty"
        )
    return prefix


def _custom_fields(options: PluginOptions) -> frozenset[CustomField]:
    key = "custom.metadata.fields.include"
    found = set()
    for name in options.names(key):
        if name not in CustomField.__members__:
            raise UsageError(f"{key}={name}: expected {', '.join(CustomField.__members__)}")
        found.add(CustomField[name])
    return frozenset(found)


def _keys(options: PluginOptions, fs: FileSystem) -> tuple[SealingKey | None, DataKeys]:
    """Return the key of new segments (None: not encrypted), and the keys to read older ones."""
    enabled = options.boolean("encryption.enabled")
    active, ids = options.take("encryption.key.pair.id"), options.names(_PAIRS)
    if enabled and (not active or active not in ids):
        raise UsageError(f"encryption.key.pair.id={active or ''}: expected one of those in {_PAIRS}={','.join(ids)}")
    if ids:
        require_cryptography(_PAIRS)
    sealing_key, private_keys = None, {}
    for key_id in ids:
        if ":" in key_id:
            raise UsageError(f"{_PAIRS}={key_id}: an id without ':' is expected")
        public, private = (f"{_PAIRS}.{key_id}.{kind}.key.file" for kind in ("public", "private"))
        public_key = read_public_key(public, options.required(public), fs)
        private_keys[key_id] = read_private_key(private, options.required(private), fs)
        if private_keys[key_id].public_key().public_numbers() != public_key.public_numbers():
            raise UsageError(f"{public} and {private} are not the keys of one pair")
        if enabled and key_id == active:
            sealing_key = SealingKey(key_id, public_key)
    return sealing_key, DataKeys(private_keys)
