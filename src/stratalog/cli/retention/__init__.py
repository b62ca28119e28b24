"""`stratalog retention`: why records are still there, when they go, and what other settings would change."""
