from .accepted import AcceptedConnections as AcceptedConnections, AcceptReading as AcceptReading
from .client_quotas import (
    ClientQuotas as ClientQuotas,
    QuotaTimer as QuotaTimer,
    address_of as address_of,
    addresses_of as addresses_of,
)
from .entity import (
    ADDRESS_QUOTAS as ADDRESS_QUOTAS,
    CLIENT_ID as CLIENT_ID,
    CLIENT_QUOTAS as CLIENT_QUOTAS,
    IP as IP,
    USER as USER,
    QuotaEntity as QuotaEntity,
    QuotaFilter as QuotaFilter,
    check_quota as check_quota,
    entity_of as entity_of,
    keys_of as keys_of,
)
from .meter import (
    MeterReading as MeterReading,
    QuotaClient as QuotaClient,
    QuotaMeter as QuotaMeter,
    QuotaThrottle as QuotaThrottle,
)
from .mutations import MutationPermit as MutationPermit
from .pace import QuotaPace as QuotaPace
