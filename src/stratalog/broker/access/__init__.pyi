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
from .authorizer import (
    Authorizer as Authorizer,
)
