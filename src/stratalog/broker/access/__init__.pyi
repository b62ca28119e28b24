from .acls import (
    CLUSTER_NAME as CLUSTER_NAME,
)
from .acls import (
    Acl as Acl,
)
from .acls import (
    AclFilter as AclFilter,
)
from .acls import (
    AclOperation as AclOperation,
)
from .acls import (
    PatternType as PatternType,
)
from .acls import (
    Permission as Permission,
)
from .acls import (
    ResourceType as ResourceType,
)
from .acls import (
    acl_of as acl_of,
)
from .acls import (
    check_new_acl as check_new_acl,
)
from .authorizer import (
    Authorizer as Authorizer,
)
from .control import (
    AccessControl as AccessControl,
)
from .control import (
    access_control as access_control,
)
from .guard import (
    guarded as guarded,
)
from .requirements import (
    GUARDS as GUARDS,
)
