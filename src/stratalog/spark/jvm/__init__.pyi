from .capabilities import (
    DAEMON as DAEMON,
    DAEMON_MODULE as DAEMON_MODULE,
    PUSHDOWN as PUSHDOWN,
    TESTED_SPARK as TESTED_SPARK,
    UNIX_SOCKETS as UNIX_SOCKETS,
    CapabilityState as CapabilityState,
    probe_session as probe_session,
    warn_of_slow_paths as warn_of_slow_paths,
)
from .java import find_java as find_java, spark_java_home as spark_java_home
from .jvm_classes import is_connect as is_connect, reason_of as reason_of
from .quiet_workers import quiet_this_worker as quiet_this_worker, without_traceback as without_traceback
from .scan_rule import install_scan_rule as install_scan_rule
