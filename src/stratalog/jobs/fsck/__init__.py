"""Check log directories that no broker serves, and repair the files that are derived from the log."""

import lazy_loader

from stratalog.jobs.callable_package import make_callable

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

make_callable(__name__)
