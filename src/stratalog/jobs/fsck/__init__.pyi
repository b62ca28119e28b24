from .actions import FileAction as FileAction
from .data_dir import is_partition_dir as is_partition_dir
from .findings import FileFinding as FileFinding, FsckKind as FsckKind
from .producers import Replay as Replay
from .repair import plan as plan
from .run import CheckReport as CheckReport, fsck as fsck
