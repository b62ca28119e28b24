"""Who is at the other end of a connection, by which listener it came in, and what it has proved."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
