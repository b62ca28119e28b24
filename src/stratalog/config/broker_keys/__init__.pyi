from .coordinators import COORDINATOR_KEYS as COORDINATOR_KEYS
from .declaring import NO_OTHERS as NO_OTHERS, ONE_REPLICA as ONE_REPLICA
from .network import NETWORK_KEYS as NETWORK_KEYS
from .node import NODE_KEYS as NODE_KEYS
from .own import INITIAL_METADATA_VERSION as INITIAL_METADATA_VERSION, OWN_KEYS as OWN_KEYS
from .storage import STORAGE_KEYS as STORAGE_KEYS
