from . import bucket_transaction as bucket_transaction
from .bucket_transaction import (
    DIRECTORY as DIRECTORY,
    applied as applied,
    changes as changes,
    discard as discard,
    finish_publications as finish_publications,
    publish as publish,
    read_publications as read_publications,
    remove_objects as remove_objects,
    replaced_segments as replaced_segments,
)
from .staging import (
    BULK_BROKER_ID as BULK_BROKER_ID,
    Lineage as Lineage,
    is_bulk as is_bulk,
    is_of_job as is_of_job,
    job_of as job_of,
    move as move,
    new_job as new_job,
    segment_id as segment_id,
    stage as stage,
    sweep as sweep,
)
