from . import (
    bucket as bucket,
)
from . import (
    data_dirs as data_dirs,
)
from . import (
    local as local,
)
from .bucket_job import (
    BucketJob as BucketJob,
)
from .bucket_job import (
    job_above as job_above,
)
from .job import (
    compacted as compacted,
)
from .metadata_topic import (
    TieredCluster as TieredCluster,
)
from .plan import (
    topic_config as topic_config,
)
from .result import (
    CompactedPartition as CompactedPartition,
)
from .result import (
    CompactResult as CompactResult,
)
from .tiered import (
    Destination as Destination,
)
from .tiered import (
    InBucket as InBucket,
)
from .tiered import (
    InCluster as InCluster,
)
