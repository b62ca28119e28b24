"""`python -m stratalog`: the same as the `stratalog` command."""

from stratalog.cli.main import main

if __name__ == "__main__":
    main()
