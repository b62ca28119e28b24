from .data_dir import (
    META_PROPERTIES as META_PROPERTIES,
    DataDir as DataDir,
    format_dir as format_dir,
    is_served as is_served,
    stored_cluster_id as stored_cluster_id,
    stored_node_id as stored_node_id,
)
from .log_dirs import LogDirs as LogDirs
from .log_loading import (
    LoadJob as LoadJob,
    TopicSpec as TopicSpec,
    is_copy_of as is_copy_of,
    load_side_by_side as load_side_by_side,
    make_room as make_room,
    marked_path as marked_path,
    partitions_in as partitions_in,
    report_strays as report_strays,
    survey as survey,
)
from .offset_checkpoints import (
    ALL_CHECKPOINTS as ALL_CHECKPOINTS,
    Checkpointed as Checkpointed,
    DirCheckpoints as DirCheckpoints,
)
