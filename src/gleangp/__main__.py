"""`python -m gleangp`: the command line."""

from gleangp.cli import main

if __name__ == "__main__":
    main()
