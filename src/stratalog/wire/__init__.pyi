from .api_keys import (
    ApiKey as ApiKey,
)
from .protocol import (
    INT16 as INT16,
)
from .protocol import (
    INT32 as INT32,
)
from .protocol import (
    REQUEST_HEAD as REQUEST_HEAD,
)
from .protocol import (
    EncodedResponse as EncodedResponse,
)
from .protocol import (
    Tagged as Tagged,
)
from .protocol import (
    is_flexible as is_flexible,
)
from .protocol import (
    is_prepared as is_prepared,
)
from .protocol import (
    make_message as make_message,
)
from .protocol import (
    message_module as message_module,
)
from .protocol import (
    prepare as prepare,
)
from .protocol import (
    principal_class as principal_class,
)
from .protocol import (
    put_throttle_time as put_throttle_time,
)
from .protocol import (
    read_client_id as read_client_id,
)
from .protocol import (
    read_message as read_message,
)
from .protocol import (
    read_request as read_request,
)
from .protocol import (
    request_class as request_class,
)
from .protocol import (
    response_class as response_class,
)
from .protocol import (
    skip_tagged_fields as skip_tagged_fields,
)
from .protocol import (
    warm_up as warm_up,
)
from .protocol import (
    with_parts as with_parts,
)
from .protocol import (
    write_message as write_message,
)
from .protocol import (
    write_response as write_response,
)
