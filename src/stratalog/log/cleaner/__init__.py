"""Compaction of one log: keep the newest record of each key.

`cleaner.Cleaner` does one cleaning of one log. `docs/explanation/compaction.md` shows its steps and what is kept
when.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
