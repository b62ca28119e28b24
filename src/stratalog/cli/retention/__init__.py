"""`stratalog retention`: why records are kept, when they are deleted, and what other settings would change."""
