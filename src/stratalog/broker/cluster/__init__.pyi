from .member import (
    ClusterMember as ClusterMember,
)
from .settings import (
    ClusterSettings as ClusterSettings,
)
