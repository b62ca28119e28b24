from .acls import (
    CLUSTER_NAME as CLUSTER_NAME,
    Acl as Acl,
    AclFilter as AclFilter,
    AclOperation as AclOperation,
    PatternType as PatternType,
    Permission as Permission,
    ResourceType as ResourceType,
    acl_of as acl_of,
    acl_of_message as acl_of_message,
    check_new_acl as check_new_acl,
    names_unknown as names_unknown,
)
from .authorizer import Authorizer as Authorizer
from .control import AccessControl as AccessControl, access_control as access_control, super_users as super_users
from .guard import guarded as guarded
from .requirements import GUARDS as GUARDS
