from .capabilities import (
    DAEMON as DAEMON,
)
from .capabilities import (
    DAEMON_MODULE as DAEMON_MODULE,
)
from .capabilities import (
    PUSHDOWN as PUSHDOWN,
)
from .capabilities import (
    TESTED_SPARK as TESTED_SPARK,
)
from .capabilities import (
    UNIX_SOCKETS as UNIX_SOCKETS,
)
from .capabilities import (
    CapabilityState as CapabilityState,
)
from .capabilities import (
    probe_session as probe_session,
)
from .capabilities import (
    warn_of_slow_paths as warn_of_slow_paths,
)
from .java import (
    find_java as find_java,
)
from .java import (
    spark_java_home as spark_java_home,
)
from .jvm_classes import (
    is_connect as is_connect,
)
from .jvm_classes import (
    reason_of as reason_of,
)
from .quiet_workers import (
    quiet_this_worker as quiet_this_worker,
)
from .quiet_workers import (
    without_traceback as without_traceback,
)
from .scan_rule import (
    install_scan_rule as install_scan_rule,
)
