"""`python -m zync` is `zync`."""

from zync.cli import main

if __name__ == "__main__":
    main()
