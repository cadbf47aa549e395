"""The program `zync`, also as `python -m zync`."""

import atexit
import os
import signal
import sys

from zync.errors import INTERRUPTED


def main() -> None:
    """Runs the command line. Ctrl-C prints no traceback, also while its modules load."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's threads would spin for a while after it is loaded
    # Python removes signal handlers at its end, and then a second Ctrl-C would change the exit code of a finished run.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    try:
        from zync.cli import main as run  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
