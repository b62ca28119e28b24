from .bucket import (
    KnownTopic as KnownTopic,
    RestoredTopic as RestoredTopic,
    RestorePlan as RestorePlan,
    plan_restore as plan_restore,
)
from .files import METADATA_TOPIC as METADATA_TOPIC
from .plan import Judged as Judged, PartitionRestore as PartitionRestore, Verdict as Verdict
from .run import Written as Written, check_target as check_target, write_restore as write_restore
