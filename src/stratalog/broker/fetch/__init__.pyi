from .fetch_frames import (
    FLEXIBLE_FROM as FLEXIBLE_FROM,
    RACK_FROM as RACK_FROM,
    TOPIC_IDS_FROM as TOPIC_IDS_FROM,
    FetchedPartition as FetchedPartition,
    FetchPartition as FetchPartition,
    FetchRequest as FetchRequest,
    FetchTopic as FetchTopic,
    encode_fetch as encode_fetch,
    parse_fetch as parse_fetch,
)
from .fetching import (
    FetchPlan as FetchPlan,
    FetchRead as FetchRead,
    PendingFetch as PendingFetch,
    PendingRemoteFetch as PendingRemoteFetch,
    Results as Results,
    WantedPartition as WantedPartition,
    WantedTopic as WantedTopic,
    count_fetched as count_fetched,
    read_plan as read_plan,
)
from .remote_reads import SharedRemoteReads as SharedRemoteReads
from .replica_selection import rack_aware as rack_aware
from .sessions import FetchExchange as FetchExchange, FetchSessionCache as FetchSessionCache
