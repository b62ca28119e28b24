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
from .plan import (
    Judged as Judged,
)
from .plan import (
    PartitionRestore as PartitionRestore,
)
from .plan import (
    Verdict as Verdict,
)
from .run import (
    Written as Written,
)
from .run import (
    check_target as check_target,
)
from .run import (
    write_restore as write_restore,
)
