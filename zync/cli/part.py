"""Runs a command as a part of `zync run`: `python -m zync.cli.part sync raw staging …`.

The process stops on SIGTERM like the command. It also stops when `zync run` ends in any way, as that closes the other
end of its standard input.
"""

import os
import signal
import threading

from zync.cli import main


def _end_with_the_run() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_run, name="run", daemon=True).start()
    main()
