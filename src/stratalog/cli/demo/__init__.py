"""`stratalog demo`: the main job, end to end, on real input, with every answer checked."""
