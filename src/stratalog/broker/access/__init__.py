"""Authorization: access rules (ACLs), the authorizer, the guard of each API, and the audit log."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
