from .delegation_tokens import (
    DelegationToken as DelegationToken,
    IssuedTokens as IssuedTokens,
    may_ask_for_tokens as may_ask_for_tokens,
)
from .key_stores import load_identity as load_identity, load_trusted as load_trusted
from .peer import ANONYMOUS as ANONYMOUS, Listener as Listener, Peer as Peer, Principal as Principal
from .sasl import (
    SaslMechanism as SaslMechanism,
    SaslSettings as SaslSettings,
    plain_exchange as plain_exchange,
    sasl_settings as sasl_settings,
)
from .sasl_exchange import SaslExchange as SaslExchange, SaslFailureError as SaslFailureError
from .scram import (
    ITERATIONS_MAX as ITERATIONS_MAX,
    ITERATIONS_MIN as ITERATIONS_MIN,
    SCRAM_HASHES as SCRAM_HASHES,
    Account as Account,
    Accounts as Accounts,
    ScramCredential as ScramCredential,
    credential_of_password as credential_of_password,
    scram_credential as scram_credential,
)
from .scram_argument import parse_scram_argument as parse_scram_argument
from .scram_users import ScramUsers as ScramUsers, check_stored_user as check_stored_user
from .tls import ServerTls as ServerTls
