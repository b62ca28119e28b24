"""The command line: `stratalog COMMAND ...`. One module a command, imported only when that command runs."""
