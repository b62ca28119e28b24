from .accepted import (
    AcceptedConnections as AcceptedConnections,
)
from .accepted import (
    AcceptReading as AcceptReading,
)
from .client_quotas import (
    ClientQuotas as ClientQuotas,
)
from .client_quotas import (
    QuotaTimer as QuotaTimer,
)
from .client_quotas import (
    address_of as address_of,
)
from .client_quotas import (
    addresses_of as addresses_of,
)
from .entity import (
    ADDRESS_QUOTAS as ADDRESS_QUOTAS,
)
from .entity import (
    CLIENT_ID as CLIENT_ID,
)
from .entity import (
    CLIENT_QUOTAS as CLIENT_QUOTAS,
)
from .entity import (
    IP as IP,
)
from .entity import (
    USER as USER,
)
from .entity import (
    QuotaEntity as QuotaEntity,
)
from .entity import (
    QuotaFilter as QuotaFilter,
)
from .entity import (
    check_quota as check_quota,
)
from .entity import (
    entity_of as entity_of,
)
from .entity import (
    keys_of as keys_of,
)
from .meter import (
    MeterReading as MeterReading,
)
from .meter import (
    QuotaClient as QuotaClient,
)
from .meter import (
    QuotaMeter as QuotaMeter,
)
from .meter import (
    QuotaThrottle as QuotaThrottle,
)
from .mutations import (
    MutationPermit as MutationPermit,
)
from .pace import (
    QuotaPace as QuotaPace,
)
