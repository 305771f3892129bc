"""How a host runs our hook: the one place that says it, for what installs, checks and measures it.

The interpreter is started without site-packages and environment (-I -S -E), since those cost more than all the hook
does. The code on the command line imports `hook.py` from its directory, so that Python keeps it compiled, and it looks
first whether it is there: a script that is gone would make Python exit with 2, which hosts take as an order to block
the user's prompt. Whoever uninstalled recalld and left a hook behind sees nothing of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

HOOK_DIRECTORY = Path(__file__).resolve().parent  # where `hook.py` lies
BOOTSTRAP = (
    "import sys,posix;d=sys.argv.pop(1);sys.path.insert(0,d);posix.access(d+'/hook.py',4)and __import__('hook').main()"
)


def hook_command(host: str, event: str = "", python: str = sys.executable) -> list[str]:
    """The arguments that run the hook of `host`, the first an absolute path; to be quoted by whoever needs a shell.

    event: where the host's payload does not name it. python: any CPython 3.11 or newer.

    >>> hook_command("copilot", "postToolUse")[-2:]
    ['copilot', 'postToolUse']
    """
    command = [python, "-I", "-S", "-E", "-c", BOOTSTRAP, str(HOOK_DIRECTORY), host]
    return [*command, event] if event else command
