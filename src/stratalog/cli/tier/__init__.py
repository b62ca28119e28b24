"""`stratalog tier`: what lies in a bucket of tiered topics, what is wrong with it, and setting it right."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
