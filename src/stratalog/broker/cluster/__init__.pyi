from .cluster_broker import (
    open_cluster_storage as open_cluster_storage,
)
from .member import (
    ClusterMember as ClusterMember,
)
from .settings import (
    ClusterSettings as ClusterSettings,
)
