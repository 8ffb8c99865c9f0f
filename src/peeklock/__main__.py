"""Lets `python -m peeklock` be the command `peeklock`."""

from peeklock.cli.main import main

if __name__ == "__main__":
    main()
