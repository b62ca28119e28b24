"""`stratalog produce`: records from standard input, files or the command line into a topic."""
