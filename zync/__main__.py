"""The program `zync`; `python -m zync` is the same."""

import atexit
import os
import signal
import sys

from zync.errors import INTERRUPTED


def main() -> None:
    """Runs the command line; Ctrl-C is quiet already while that is loaded."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's, which would spin for a while once that is loaded
    # At its very end Python lets go of our handlers, and a second Ctrl-C would change how a run ended that is over.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    try:
        from zync.cli import main as run  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
