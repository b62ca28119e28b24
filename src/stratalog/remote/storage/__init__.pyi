from .block_facts import (
    BlockFacts as BlockFacts,
)
from .block_facts import (
    BlockFactsReader as BlockFactsReader,
)
from .chunks import (
    ChunkIndex as ChunkIndex,
)
from .encoder import (
    Encoder as Encoder,
)
from .encoder import (
    Encoding as Encoding,
)
from .layouts import (
    ReadKeys as ReadKeys,
)
from .layouts import (
    SegmentReader as SegmentReader,
)
from .layouts import (
    object_key as object_key,
)
from .layouts import (
    parse_manifest_key as parse_manifest_key,
)
from .layouts import (
    read_manifest as read_manifest,
)
from .layouts import (
    read_replaced as read_replaced,
)
from .layouts import (
    stored_objects as stored_objects,
)
from .manifest import (
    BLOCK_BYTES as BLOCK_BYTES,
)
from .manifest import (
    ObjectLayout as ObjectLayout,
)
from .manifest import (
    SegmentManifest as SegmentManifest,
)
from .manifest import (
    StoredObject as StoredObject,
)
from .object_names import (
    CONTENTS as CONTENTS,
)
from .object_names import (
    DELETION_ORDER as DELETION_ORDER,
)
from .object_names import (
    METADATA_COPY as METADATA_COPY,
)
from .object_names import (
    METADATA_DIRECTORY as METADATA_DIRECTORY,
)
from .object_names import (
    ObjectKey as ObjectKey,
)
from .object_names import (
    ObjectKind as ObjectKind,
)
from .object_names import (
    parse_topic_directory as parse_topic_directory,
)
from .object_names import (
    partition_directory as partition_directory,
)
from .object_store import (
    ForwardingObjectStore as ForwardingObjectStore,
)
from .object_store import (
    ObjectInfo as ObjectInfo,
)
from .object_store import (
    ObjectStore as ObjectStore,
)
from .object_store import (
    ObstoreObjectStore as ObstoreObjectStore,
)
from .opening import (
    open_store as open_store,
)
from .options import (
    storage_manager_options as storage_manager_options,
)
from .plain_view import (
    PlainView as PlainView,
)
from .plain_view import (
    open_bucket as open_bucket,
)
from .rsm import (
    ObjectStoreRemoteStorageManager as ObjectStoreRemoteStorageManager,
)
from .s3_uploads import (
    PendingUpload as PendingUpload,
)
from .s3_uploads import (
    S3Uploads as S3Uploads,
)
