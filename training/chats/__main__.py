"""`python -m training.chats --conversations 3 --seed 1 [--agents] [--json]`: samples, for a person to read."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime

from training.chats import chat_pools
from training.pools import Pool


def shown(pool: Pool) -> str:
    lines = [f"==== {pool.name}: {len(pool.rows)} turns, {len(pool.asks)} questions"]
    source = ""
    for place, row in enumerate(pool.rows):
        if row.source != source:
            source = row.source
            day = datetime.fromtimestamp(row.written_at or 0, UTC)
            lines.append(f"-- {source}, {day:%A %d %B %Y %H:%M}")
        lines.append(f"{place:4} {row.speaker}: {row.text}")
    for ask in pool.asks:
        focus = {key: value for key, value in asdict(ask.focus).items() if value}
        lines.append(f"?? {ask.kind} {sorted(ask.gold)} {focus.get('user_text', focus)}")
        lines += [f"        {place} {pool.rows[place].speaker}: {pool.rows[place].text}" for place in sorted(ask.gold)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training.chats", description="Print made-up conversations.")
    parser.add_argument("--conversations", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", action="store_true", help="the memories of agents instead of friends' chats")
    parser.add_argument("--json", action="store_true", help="one pool a line")
    chosen = parser.parse_args()
    if chosen.agents:
        from training.chats.agents import agent_pools

        pools = agent_pools(chosen.conversations, chosen.seed)
    else:
        pools = chat_pools(chosen.conversations, chosen.seed)
    for pool in pools:
        if chosen.json:
            json.dump(asdict(pool), sys.stdout, default=sorted)
            print()
        else:
            print(shown(pool))


if __name__ == "__main__":
    main()
