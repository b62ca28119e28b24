"""Who may do what: access rules, the authorizer that decides by them, and its audit log."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
