"""`python -m seqprep` is the command line."""

from seqprep.cli.main import main

if __name__ == "__main__":
    main()
