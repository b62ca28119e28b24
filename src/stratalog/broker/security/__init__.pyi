from .peer import (
    Listener as Listener,
)
from .peer import (
    Peer as Peer,
)
from .peer import (
    Principal as Principal,
)
from .tls import (
    ServerTls as ServerTls,
)
