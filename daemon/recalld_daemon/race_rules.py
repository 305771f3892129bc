"""What holds of a race between any two events, as named rules. Tests check them after each event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recalld_daemon.race_recall import Phase

if TYPE_CHECKING:
    from recalld_daemon.race import Race


def broken_rules(race: Race) -> list[str]:
    """The rules that do not hold, by name; none in a sound race."""
    recalls, limits, calls = list(race.recalls), race.limits, race.calls
    running = sum(r.phase is Phase.RUNNING for r in recalls)
    waiting = sum(r.phase is Phase.WAITING for r in recalls)
    claims = [passage for r in recalls for passage in {offer.passage for offer, _ in r.out.values()}]
    rules = {
        # nothing grows without bound
        "live recalls are bounded": len(recalls) <= limits.max_live,
        "running recalls are bounded": running <= limits.max_running,
        "at most one recall waits": waiting <= 1,
        "offer ids are bounded": all(len(r.out) <= limits.max_ids for r in recalls),
        "calls per recall are bounded": all(len(r.calls) <= limits.max_calls_per_recall for r in recalls),
        "open calls are bounded": len(calls.open) <= limits.max_open_calls,
        "ended calls are bounded": len(calls.ended) <= limits.max_ended_calls,
        "shown passages are bounded": len(race.recalls.shown) <= limits.max_delivered,
        "the log is bounded": len(race.log) <= limits.max_log,
        "a closed race holds nothing": not race.closed
        or not (recalls or calls.open or calls.ended or race.recalls.shown),
        "a session's tokens are kept to": race.recalls.tokens <= limits.session_tokens,
        # phases
        "none waits while there is a place": not waiting or running == limits.max_running,
        "none that is over is kept": all(r.phase is not Phase.OVER for r in recalls),
        "what is pending has something to give": all(r.best for r in recalls if r.phase is Phase.PENDING),
        "what is settled does not run, and the other way round": all(
            (r.outcome is None) == (r.phase in (Phase.WAITING, Phase.RUNNING)) for r in recalls
        ),
        "each recall is counted once": race.recalls.issued == sum(race.counts.values()) + len(recalls),
        # what may be shown
        "a passage is out with one recall only": len(claims) == len(set(claims)),
        "a passage that was shown is not out": race.recalls.shown.keys().isdisjoint(claims),
    }
    return [rule for rule, holds in rules.items() if not holds]
