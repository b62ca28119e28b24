"""The output of commands: tables on a terminal, plain lines in a pipe, JSON on request."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
