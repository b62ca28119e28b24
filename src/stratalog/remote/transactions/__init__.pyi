from . import (
    bucket_transaction as bucket_transaction,
)
from .bucket_transaction import (
    DIRECTORY as DIRECTORY,
)
from .bucket_transaction import (
    applied as applied,
)
from .bucket_transaction import (
    changes as changes,
)
from .bucket_transaction import (
    discard as discard,
)
from .bucket_transaction import (
    finish_publications as finish_publications,
)
from .bucket_transaction import (
    publish as publish,
)
from .bucket_transaction import (
    read_publications as read_publications,
)
from .bucket_transaction import (
    remove_objects as remove_objects,
)
from .bucket_transaction import (
    replaced_segments as replaced_segments,
)
from .staging import (
    BULK_BROKER_ID as BULK_BROKER_ID,
)
from .staging import (
    Lineage as Lineage,
)
from .staging import (
    is_bulk as is_bulk,
)
from .staging import (
    is_of_job as is_of_job,
)
from .staging import (
    job_of as job_of,
)
from .staging import (
    move as move,
)
from .staging import (
    new_job as new_job,
)
from .staging import (
    segment_id as segment_id,
)
from .staging import (
    stage as stage,
)
from .staging import (
    sweep as sweep,
)
