from .fetch_frames import (
    FLEXIBLE_FROM as FLEXIBLE_FROM,
)
from .fetch_frames import (
    RACK_FROM as RACK_FROM,
)
from .fetch_frames import (
    TOPIC_IDS_FROM as TOPIC_IDS_FROM,
)
from .fetch_frames import (
    FetchedPartition as FetchedPartition,
)
from .fetch_frames import (
    FetchPartition as FetchPartition,
)
from .fetch_frames import (
    FetchRequest as FetchRequest,
)
from .fetch_frames import (
    FetchTopic as FetchTopic,
)
from .fetch_frames import (
    encode_fetch as encode_fetch,
)
from .fetch_frames import (
    parse_fetch as parse_fetch,
)
from .fetching import (
    FetchPlan as FetchPlan,
)
from .fetching import (
    FetchRead as FetchRead,
)
from .fetching import (
    PendingFetch as PendingFetch,
)
from .fetching import (
    PendingRemoteFetch as PendingRemoteFetch,
)
from .fetching import (
    Results as Results,
)
from .fetching import (
    WantedPartition as WantedPartition,
)
from .fetching import (
    WantedTopic as WantedTopic,
)
from .fetching import (
    count_fetched as count_fetched,
)
from .fetching import (
    read_plan as read_plan,
)
from .remote_reads import (
    SharedRemoteReads as SharedRemoteReads,
)
from .replica_selection import (
    rack_aware as rack_aware,
)
from .sessions import (
    FetchExchange as FetchExchange,
)
from .sessions import (
    FetchSessionCache as FetchSessionCache,
)
