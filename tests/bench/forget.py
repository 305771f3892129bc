"""How long forgetting one memory takes, from the question to its acknowledgement, all files purged, in a large memory.

`python tests/bench/forget.py HOME NOTES [FLAG...]`: a home that was made by `recalld run --home HOME --watch NOTES`, to
be copied first, since memories are added and forgotten; further flags go to `recalld run`. Prints JSON: passages;
first_seconds, with whatever an old database owes once; seconds, the others in turn; recall_ms before and while it
forgets: medians of searches one after the other.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from recalld_client.link import Link
from recalld_daemon.demo.private import PrivateDaemon, private_daemon, wait_until_indexed
from recalld_protocol.messages import Forget, Forgotten, Hits, Remember, Remembered, Search

FORGOTTEN = 7
SEARCHES = 40
PATIENCE = 900.0


def remember(daemon: PrivateDaemon, n: int) -> str:
    kept = daemon.link.request(Remember(text=f"The quexalorn ledger number {n} lies in the harbour office"), PATIENCE)
    assert isinstance(kept, Remembered), kept
    return kept.memory


def forget(daemon: PrivateDaemon, memory: str) -> float:
    began = time.monotonic()
    answer = daemon.link.request(Forget(path=memory), PATIENCE)
    assert isinstance(answer, Forgotten), answer
    return time.monotonic() - began


def search_ms(link: Link) -> float:
    began = time.monotonic()
    asked = Search(query="which index locks the booking table", all_scopes=True)
    assert isinstance(link.request(asked, PATIENCE), Hits)
    return (time.monotonic() - began) * 1000


def main(home: Path, notes: Path, flags: list[str]) -> None:
    with private_daemon([notes], home, flags) as daemon, ThreadPoolExecutor(1) as pool:
        wait_until_indexed(daemon, lambda line: print(line, file=sys.stderr))
        memories = [remember(daemon, n) for n in range(FORGOTTEN)]
        status = wait_until_indexed(daemon, lambda line: None)
        quiet = [search_ms(daemon.link) for _ in range(SEARCHES)]
        first, *others = memories
        first_seconds = forget(daemon, first)
        beside = Link(daemon.endpoints)
        assert beside.open()
        busy = pool.submit(lambda: [forget(daemon, memory) for memory in others])
        meanwhile = []
        while not busy.done():
            meanwhile.append(search_ms(beside))
        beside.close()
        seconds = busy.result()
    figures = {
        "passages": status.topics["index"]["passages"], "first_seconds": round(first_seconds, 2),
        "seconds": [round(s, 2) for s in seconds], "median_seconds": round(statistics.median(seconds), 2),
        "recall_ms": round(statistics.median(quiet), 1), "recall_ms_meanwhile": round(statistics.median(meanwhile), 1),
        "recall_ms_meanwhile_max": round(max(meanwhile), 1), "searches_meanwhile": len(meanwhile),
    }  # fmt: skip
    print(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
