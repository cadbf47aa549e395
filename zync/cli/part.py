"""A part of `zync run`, as a process of its own: `python -m zync.cli.part sync raw staging …`.

It is the command of that name, and ends like it on SIGTERM; and it ends when the run does, however that ends: the run
holds the other end of this process's standard input.
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
