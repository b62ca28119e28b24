from .bucket import (
    KnownTopic as KnownTopic,
)
from .bucket import (
    RestoredTopic as RestoredTopic,
)
from .bucket import (
    RestorePlan as RestorePlan,
)
from .bucket import (
    plan_restore as plan_restore,
)
from .files import (
    METADATA_TOPIC as METADATA_TOPIC,
)
from .files import (
    write_partition as write_partition,
)
from .plan import (
    Judged as Judged,
)
from .plan import (
    PartitionPlan as PartitionPlan,
)
from .plan import (
    Verdict as Verdict,
)
from .run import (
    Written as Written,
)
from .run import (
    begin_anew as begin_anew,
)
from .run import (
    check_target as check_target,
)
from .run import (
    write_restore as write_restore,
)
