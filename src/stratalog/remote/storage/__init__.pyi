from .aiven.manager import AivenRemoteStorageManager as AivenRemoteStorageManager
from .aiven.settings import PLUGIN_CLASS as PLUGIN_CLASS, AivenSettings as AivenSettings
from .block_facts import BlockFacts as BlockFacts, BlockFactsReader as BlockFactsReader
from .chunks import ChunkIndex as ChunkIndex
from .encoder import Encoder as Encoder, Encoding as Encoding
from .layouts import (
    ReadKeys as ReadKeys,
    SegmentReader as SegmentReader,
    object_key as object_key,
    parse_manifest_key as parse_manifest_key,
    read_manifest as read_manifest,
    read_replaced as read_replaced,
    stored_objects as stored_objects,
)
from .manifest import (
    BLOCK_BYTES as BLOCK_BYTES,
    ObjectLayout as ObjectLayout,
    SegmentManifest as SegmentManifest,
    StoredObject as StoredObject,
)
from .object_names import (
    CONTENTS as CONTENTS,
    DELETION_ORDER as DELETION_ORDER,
    METADATA_COPY as METADATA_COPY,
    METADATA_DIRECTORY as METADATA_DIRECTORY,
    ObjectKey as ObjectKey,
    ObjectKind as ObjectKind,
    parse_topic_directory as parse_topic_directory,
    partition_directory as partition_directory,
)
from .object_store import (
    ForwardingObjectStore as ForwardingObjectStore,
    ObjectInfo as ObjectInfo,
    ObjectStore as ObjectStore,
    ObstoreObjectStore as ObstoreObjectStore,
)
from .opening import open_store as open_store
from .options import storage_manager_options as storage_manager_options
from .plain_view import PlainView as PlainView, open_bucket as open_bucket
from .rsm import ObjectStoreRemoteStorageManager as ObjectStoreRemoteStorageManager
from .s3_uploads import PendingUpload as PendingUpload, S3Uploads as S3Uploads
