from .dispatch import (
    REGISTRY as REGISTRY,
)
from .dispatch import (
    Api as Api,
)
from .dispatch import (
    ApiKey as ApiKey,
)
from .dispatch import (
    Caller as Caller,
)
from .dispatch import (
    Chunk as Chunk,
)
from .dispatch import (
    Deferred as Deferred,
)
from .dispatch import (
    Registry as Registry,
)
from .dispatch import (
    RequestContext as RequestContext,
)
from .dispatch import (
    handles as handles,
)
from .dispatch import (
    handles_frames as handles_frames,
)
from .listen_address import (
    ListenAddress as ListenAddress,
)
from .listen_address import (
    bind as bind,
)
from .listen_address import (
    parse_address as parse_address,
)
from .server import (
    SETTINGS_FOR_TESTS as SETTINGS_FOR_TESTS,
)
from .server import (
    Broker as Broker,
)
