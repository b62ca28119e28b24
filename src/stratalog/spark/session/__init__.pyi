from .doctor import (
    SessionHealth as SessionHealth,
)
from .doctor import (
    Weight as Weight,
)
from .doctor import (
    examine_machine as examine_machine,
)
from .doctor import (
    examine_session as examine_session,
)
from .doctor import (
    with_error as with_error,
)
from .package import (
    build_environment as build_environment,
)
from .sessions import (
    make_active as make_active,
)
from .sessions import (
    open_local_session as open_local_session,
)
from .sessions import (
    register_source as register_source,
)
from .sessions import (
    say_wrong_queries_once as say_wrong_queries_once,
)
from .worker_python import (
    WorkerPythonError as WorkerPythonError,
)
