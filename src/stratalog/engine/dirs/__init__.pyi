from .data_dir import (
    META_PROPERTIES as META_PROPERTIES,
)
from .data_dir import (
    DataDir as DataDir,
)
from .data_dir import (
    format_dir as format_dir,
)
from .data_dir import (
    is_served as is_served,
)
from .data_dir import (
    stored_cluster_id as stored_cluster_id,
)
from .data_dir import (
    stored_node_id as stored_node_id,
)
from .log_dirs import (
    LogDirs as LogDirs,
)
from .log_loading import (
    LoadJob as LoadJob,
)
from .log_loading import (
    TopicSpec as TopicSpec,
)
from .log_loading import (
    load_side_by_side as load_side_by_side,
)
from .log_loading import (
    make_room as make_room,
)
from .log_loading import (
    marked_path as marked_path,
)
from .log_loading import (
    partitions_in as partitions_in,
)
from .log_loading import (
    report_strays as report_strays,
)
from .log_loading import (
    survey as survey,
)
from .offset_checkpoints import (
    ALL_CHECKPOINTS as ALL_CHECKPOINTS,
)
from .offset_checkpoints import (
    Checkpointed as Checkpointed,
)
from .offset_checkpoints import (
    DirCheckpoints as DirCheckpoints,
)
