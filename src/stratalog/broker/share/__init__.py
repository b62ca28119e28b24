"""Share partitions (KIP-932): delivery of records to members, acknowledgements, and the share coordinator."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
