from .delegation_tokens import (
    DelegationToken as DelegationToken,
)
from .delegation_tokens import (
    IssuedTokens as IssuedTokens,
)
from .delegation_tokens import (
    may_ask_for_tokens as may_ask_for_tokens,
)
from .key_stores import (
    load_identity as load_identity,
)
from .key_stores import (
    load_trusted as load_trusted,
)
from .peer import (
    Listener as Listener,
)
from .peer import (
    Peer as Peer,
)
from .peer import (
    Principal as Principal,
)
from .sasl import (
    SaslMechanism as SaslMechanism,
)
from .sasl import (
    SaslSettings as SaslSettings,
)
from .sasl import (
    sasl_settings as sasl_settings,
)
from .sasl_exchange import (
    SaslExchange as SaslExchange,
)
from .sasl_exchange import (
    SaslFailureError as SaslFailureError,
)
from .scram import (
    ITERATIONS_MAX as ITERATIONS_MAX,
)
from .scram import (
    ITERATIONS_MIN as ITERATIONS_MIN,
)
from .scram import (
    SCRAM_HASHES as SCRAM_HASHES,
)
from .scram import (
    Account as Account,
)
from .scram import (
    Accounts as Accounts,
)
from .scram import (
    ScramCredential as ScramCredential,
)
from .scram import (
    credential_of_password as credential_of_password,
)
from .scram import (
    scram_credential as scram_credential,
)
from .scram_argument import (
    parse_scram_argument as parse_scram_argument,
)
from .scram_users import (
    ScramUsers as ScramUsers,
)
from .scram_users import (
    check_stored_user as check_stored_user,
)
from .tls import (
    ServerTls as ServerTls,
)
