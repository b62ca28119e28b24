from .java import (
    spark_java_home as spark_java_home,
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
