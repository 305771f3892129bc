"""A daemon that goes away while much of what it sent is unread: the agent's process must live, and be connected again.

In a process of its own, since what is tested against is libzmq's abort().
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

AGENT = """
import sys
import zmq
from recalld_client.link import Link
from recalld_protocol.endpoints import endpoints
from recalld_protocol.messages import Ping, Pong
from recalld_protocol.wire import encode

where = endpoints({"RECALLD_RUNTIME_DIR": sys.argv[1]})
context = zmq.Context()

def daemon():
    router = context.socket(zmq.ROUTER)
    router.linger = 1000
    router.bind(where.request)
    return router

first, link = daemon(), Link(where)
while not link.send_nowait(Ping(session="s")):
    link.rest(0.01)
identity, _ = first.recv_multipart()
for _ in range(900):
    first.send_multipart([identity, encode(Pong(epoch="e", daemon="d", pid=1))])
assert link.wait(30)
first.unbind(where.request)
first.close()
second = daemon()
for _ in range(3000):
    link.send_nowait(Ping(session="s"))
    if second.poll(10):
        print("connected again")
        break
"""


def test_a_daemon_that_dies_with_much_unread_does_not_abort_the_agent(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    agent = subprocess.run(
        [sys.executable, "-c", AGENT, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (agent.returncode, agent.stdout) == (0, "connected again\n"), agent.stderr
