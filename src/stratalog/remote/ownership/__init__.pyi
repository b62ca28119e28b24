from . import (
    bucket_owner as bucket_owner,
)
from .broker_ownership import (
    BrokerOwnership as BrokerOwnership,
)
from .broker_ownership import (
    Claimant as Claimant,
)
from .bucket_owner import (
    BucketOwner as BucketOwner,
)
from .bucket_owner import (
    check_directories as check_directories,
)
from .bucket_owner import (
    check_no_owner as check_no_owner,
)
from .bucket_owner import (
    check_owner as check_owner,
)
from .bucket_owner import (
    give_up as give_up,
)
from .bucket_owner import (
    made_by_brokers as made_by_brokers,
)
from .bucket_owner import (
    owners as owners,
)
from .bucket_owner import (
    read_owner as read_owner,
)
from .bucket_owner import (
    take_over as take_over,
)
from .owner_file import (
    OWNERSHIP_FILE as OWNERSHIP_FILE,
)
from .owner_file import (
    OwnershipFile as OwnershipFile,
)
