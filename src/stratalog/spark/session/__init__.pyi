from .doctor import (
    SessionHealth as SessionHealth,
    Weight as Weight,
    examine_machine as examine_machine,
    examine_session as examine_session,
    with_error as with_error,
)
from .package import build_environment as build_environment
from .sessions import (
    make_active as make_active,
    open_local_session as open_local_session,
    register_source as register_source,
    say_wrong_queries_once as say_wrong_queries_once,
)
from .worker_python import WorkerPythonError as WorkerPythonError
