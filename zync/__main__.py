"""The program `zync`; `python -m zync` is the same."""

import sys

from zync.errors import INTERRUPTED


def main() -> None:
    """Runs the command line; Ctrl-C is quiet already while that is loaded."""
    try:
        from zync.cli import main as run  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
