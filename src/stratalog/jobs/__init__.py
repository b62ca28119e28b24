"""What looks at, checks, mends or moves data offline: each job is a plan, work and a result."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
