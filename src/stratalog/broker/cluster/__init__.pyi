from .member import (
    ClusterMember as ClusterMember,
)
from .preview import (
    warn_of_replicas as warn_of_replicas,
)
from .settings import (
    ClusterSettings as ClusterSettings,
)
