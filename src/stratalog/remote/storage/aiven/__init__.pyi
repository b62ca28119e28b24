from . import (
    chunk_sizes as chunk_sizes,
    custom_metadata as custom_metadata,
    data_keys as data_keys,
    keys as keys,
    manifest as manifest,
)
from .data_keys import DataKeys as DataKeys
from .manager import AivenRemoteStorageManager as AivenRemoteStorageManager
