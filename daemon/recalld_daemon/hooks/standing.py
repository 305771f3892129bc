"""`recalld hooks`: the front by itself, so that hosts find somebody at the port also while no daemon runs.

Claude Code tells its user of every HTTP hook that is refused. The front answers with nothing where no daemon answers
it, so one that stands by itself keeps a stopped, restarted or failed daemon out of everybody's sight. A daemon that
finds it at the port uses it.

This process becomes the front: nothing of recalld stays in memory beside it. The front ends with its standard input, so
that is a pipe whose other end it holds itself; and when `recallctl install` has chosen another port: its service starts
it anew.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

from recalld_daemon.hooks.front_keeper import LOOK_SECONDS, front_command, greeting
from recalld_protocol.endpoints import endpoints_in, runtime_dir
from recalld_protocol.hook_http import HttpHook, http_hook_file, read_http_hook


def run_hooks(environ: Mapping[str, str]) -> None:
    """Wait until `recallctl install` has chosen a port and a token, and serve there; does not return.

    Raises EndpointError, OSError.
    """
    path = endpoints_in(runtime_dir(environ)).hooks
    become_front(_wanted(environ), path, environ)


def _wanted(environ: Mapping[str, str]) -> HttpHook:
    told = False
    while (hook := read_http_hook(environ)) is None:
        if not told:
            print(f"waiting for {http_hook_file(environ)}: `recallctl install claude-code` makes it", file=sys.stderr)
            told = True
        time.sleep(LOOK_SECONDS)
    return hook


def become_front(hook: HttpHook, path: str, environ: Mapping[str, str]) -> None:
    """Replace this process. path: the daemon's hook socket, there or not."""
    reading, writing = os.pipe()
    os.write(writing, greeting(hook, path))  # far less than a pipe holds
    os.dup2(reading, 0)
    os.close(reading)
    os.set_inheritable(writing, True)
    os.chdir("/")
    command = [*front_command(), str(http_hook_file(environ))]
    os.execve(command[0], command, {"LANG": environ.get("LANG", "C")})
