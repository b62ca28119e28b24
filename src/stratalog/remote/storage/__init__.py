"""Bytes of the remote tier: the object store, the layout of keys, manifests, and the storage manager on top."""
