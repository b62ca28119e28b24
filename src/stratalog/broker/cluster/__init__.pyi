from .cluster_broker import open_cluster_storage as open_cluster_storage
from .features import SUPPORTED_FEATURES as SUPPORTED_FEATURES, lowered_features as lowered_features
from .member import ClusterMember as ClusterMember
from .settings import ClusterSettings as ClusterSettings
