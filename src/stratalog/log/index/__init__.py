"""The files of sparse indexes, and searches in them."""
