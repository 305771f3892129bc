"""Start-up, one nursery, and the way down: the only file that knows all the others.

Order matters. The lock is taken before any socket is bound; sockets answer (READY) before the store's index is open
and the model is loaded, since both take seconds and neither is needed to say "not yet". Going down, no new session is
taken, recalls under way may end, what was noted is written, and only then do the workers go.
"""

from __future__ import annotations

import logging
import os
import resource
import secrets
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import trio

from recalld_daemon import __version__
from recalld_daemon.book import SessionBook
from recalld_daemon.config import Config
from recalld_daemon.desk import Desk
from recalld_daemon.events import EventFeed
from recalld_daemon.followed_paths import FollowedPaths, roots_followed
from recalld_daemon.forgetting import Forgetting
from recalld_daemon.habits import HabitWatch
from recalld_daemon.hooks.serving import Hooks
from recalld_daemon.journal import Journal
from recalld_daemon.keys import read_clients, read_secret
from recalld_daemon.learn_worker import LearnWorker
from recalld_daemon.learner import Learner
from recalld_daemon.lock import AlreadyRunning, held_lock
from recalld_daemon.memory import Memory
from recalld_daemon.memory_topic import line_of, topic_of
from recalld_daemon.notify import Notifier
from recalld_daemon.paths import Home
from recalld_daemon.questions import Answers, Reply, Topics
from recalld_daemon.race_events import RaceLimits
from recalld_daemon.recalls import Recalls, Settings
from recalld_daemon.records import keep_session, without
from recalld_daemon.sockets import Sockets, TcpBinding, open_sockets
from recalld_daemon.sources import roots_of
from recalld_daemon.store.errors import StoreError
from recalld_daemon.worker_state import choice_of
from recalld_daemon.workers import BulkWorker, LiveWorker, ModelChoice, WorkerState
from recalld_protocol.endpoints import endpoints, prepare_runtime_dir, runtime_dir
from recalld_protocol.errors import ProtocolError
from recalld_protocol.messages import PROTOCOL_VERSIONS, Message, Welcome

TICK_SECONDS = 5.0
SWITCH_SECONDS = 0.0002  # Python's own 5 ms is as long as a whole recall: threads that judge and search must take turns
DRAIN_SECONDS = 1.2  # of the two that a stop may take: recalls end, notes are written, the index is saved
FILES = 65_536  # a session takes one, 4096 sessions may be allowed; and agents may knock all at once
LOADING = ("starting", "loading")  # phases of the live worker in which no hook waits for a recall
STATUS_SECONDS = 1.0  # between two STATUS lines for systemd

log = logging.getLogger("recalld")


def run_daemon(config: Config, home: Home, environ: Mapping[str, str]) -> int:
    """Until SIGTERM or SIGINT. Exit code 0; 3 when another daemon holds the lock; 1 when it can't start."""
    logging.basicConfig(
        stream=sys.stderr, level=config.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    os.umask(0o077)
    raise_file_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    code = 0
    try:
        directory = runtime_dir(environ)
        prepare_runtime_dir(directory)
        home.make()
        with held_lock(home.data / "lock"), held_lock(directory / "lock"):
            trio.run(Service(config, home, environ).serve)
    except* AlreadyRunning as held:
        print(f"recalld: {_first(held)}", file=sys.stderr)
        code = 3
    except* (OSError, ProtocolError, StoreError) as failed:
        print(f"recalld: {_first(failed)}", file=sys.stderr)
        code = 1
    return code


def raise_file_limit() -> None:
    """As many open files as this process may have, FILES at most: libzmq aborts where it can't accept a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


@dataclass(frozen=True, slots=True)
class Parts:
    """All that serves, wired."""

    sockets: Sockets
    memory: Memory
    feed: EventFeed
    journal: Journal
    live: LiveWorker
    bulk: BulkWorker
    book: SessionBook
    desk: Desk
    recalls: Recalls
    learner: Learner
    hooks: Hooks


class Service:
    """One life of the daemon."""

    def __init__(self, config: Config, home: Home, environ: Mapping[str, str]) -> None:
        self._config, self._home, self._environ = config, home, environ
        self._endpoints = endpoints(environ)
        self._notifier = Notifier(environ)
        self._roots = roots_of(config, environ)
        self._epoch = secrets.token_hex(4)
        self._began = time.time()
        self._told: set[tuple[str, str, str, int]] = set()  # the last change of each worker
        self._stop = trio.Event()

    async def serve(self) -> None:
        """Returns when the daemon was told to stop, with everything closed."""
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with open_sockets(self._endpoints, self._tcp()) as sockets:
                memory = await trio.to_thread.run_sync(Memory.open, self._home)
                try:
                    await trio.to_thread.run_sync(memory.writer.resume_forgetting, without)
                    async with trio.open_nursery() as nursery:
                        parts = self._parts(sockets, memory, nursery)
                        self._start(parts, nursery)
                        async for number in signals:
                            log.info("%s: stopping", signal.Signals(number).name)
                            break
                        await self._drain(parts)
                        nursery.cancel_scope.cancel()
                finally:
                    with trio.CancelScope(shield=True):
                        await trio.to_thread.run_sync(memory.close)

    def _parts(self, sockets: Sockets, memory: Memory, nursery: trio.Nursery) -> Parts:
        config = self._config
        feed = EventFeed(sockets.events)
        journal = Journal(memory.writer, memory.turns, lambda: parts.recalls.until_idle())
        live = LiveWorker(self._choice(), on_change=partial(self._worker_changed, feed, "live"))
        bulk = BulkWorker(self._choice(), on_change=partial(self._worker_changed, feed, "bulk"))
        book = SessionBook(
            self._epoch, self._limits(), config.heartbeat_seconds,
            config.session_idle_seconds, config.max_sessions, memory.scopes.get, memory.reader.delivered_passages,
            memory.reader.withheld_passages, config.observed_boundaries,
        )  # fmt: skip
        welcome = Welcome(
            version=PROTOCOL_VERSIONS[-1], epoch=self._epoch, daemon=__version__, pid=os.getpid(),
            heartbeat_seconds=config.heartbeat_seconds, stale_after=config.stale_after,
            max_snippets=config.max_snippets, boundary_tokens=config.boundary_tokens,
        )  # fmt: skip
        recaller = partial(memory.recaller, live, config.late_interaction)
        learn = LearnWorker(self._choice(), on_change=partial(self._worker_changed, feed, "learn"))
        learner = Learner(
            memory.reader, journal, feed, live, learn, memory.nearest, lambda: parts.recalls.until_idle(),
            enabled=config.online,
        )  # fmt: skip
        memory.f_q, memory.stand_on = learner.f_q, learner.stand_on
        answers = Answers(book, memory.reader, journal, feed, recaller, memory.scopes, memory.kick)

        def ask(question: Message, reply: Reply) -> None:
            nursery.start_soon(answers.answer, question, reply)

        desk = Desk(sockets.router, book, journal, feed, welcome, ask, nursery)
        answers.on_verdict = desk.watching.on_verdict = learner.on_verdict
        settings = Settings(
            config.max_snippets, config.threshold_shift, config.false_rate, config.inject, config.withheld_share
        )  # fmt: skip
        habits = HabitWatch(memory.reader)
        nursery.start_soon(habits.serve)
        nursery.start_soon(memory.interests.serve, journal.note)
        desk.recalls = Recalls(
            recaller, memory.reader, settings, desk.answered, memory.costs, lambda: habits.now, desk.withheld,
            memory.interests.ended,
        )  # fmt: skip
        hooks = Hooks(
            self._endpoints.hooks, desk, book, feed, config, self._environ, lambda: live.state.phase not in LOADING
        )
        parts = Parts(sockets, memory, feed, journal, live, bulk, book, desk, desk.recalls, learner, hooks)
        answers.memory = memory
        answers.followed = FollowedPaths(
            memory.reader, memory.writer, memory.turns, config, feed, lambda: memory.ingest, self._home.imported
        )
        answers.forgetting = forgetting = Forgetting(
            memory, journal, book, desk, learner, answers.followed, feed,
            frozenset(os.path.abspath(root.path) for root in self._roots),
        )  # fmt: skip
        nursery.start_soon(forgetting.serve)
        answers.topics = partial(self._topics, parts)
        return parts

    def _start(self, parts: Parts, nursery: trio.Nursery) -> None:
        for task in (parts.journal.serve, parts.desk.serve, parts.live.run, parts.bulk.run, parts.learner.serve):
            nursery.start_soon(task)
        nursery.start_soon(parts.hooks.serve)
        nursery.start_soon(self._watchdog)
        nursery.start_soon(parts.desk.tick, TICK_SECONDS)
        roots = [
            *roots_followed(parts.memory.reader.followed(), self._config),
            *self._roots,
        ]  # where both, as configured
        memory = partial(
            parts.memory.serve, self._config, roots, parts.live, parts.bulk, parts.recalls.until_idle,
            parts.feed, parts.book.rescoped,
        )  # fmt: skip
        nursery.start_soon(memory)
        nursery.start_soon(self._status_line, parts)
        self._notifier.ready("serving; the model is loading")
        log.info("serving at %s (pid %d, epoch %s)", self._endpoints.request, os.getpid(), self._epoch)

    async def _drain(self, parts: Parts) -> None:
        """Take no new session, let recalls end, write what was noted, save the index; DRAIN_SECONDS at most."""
        self._notifier.stopping()
        parts.desk.draining = True
        parts.feed.emit("daemon.stopping")
        now = trio.current_time()
        with trio.move_on_after(DRAIN_SECONDS):
            await parts.recalls.until_idle()
            await parts.desk.watching.flush()
            for live in parts.book:
                parts.journal.note(partial(keep_session, live.record()))
            parts.memory.interests.keep(parts.journal.note)
            await parts.journal.flush()
            await parts.memory.save()
        log.info("drained in %.0f ms", (trio.current_time() - now) * 1000)

    # ------------------------------------------------------------ small

    def _limits(self) -> RaceLimits:
        config = self._config
        return RaceLimits(
            stale_after=config.stale_after, max_snippets=config.max_snippets,
            boundary_tokens=config.boundary_tokens, session_tokens=config.session_tokens,
        )  # fmt: skip

    def _choice(self) -> ModelChoice:
        return choice_of(self._config, self._home.models)

    def _tcp(self) -> TcpBinding | None:
        """Raises ConfigError, OSError: a key file that can't be read."""
        config = self._config
        if not config.tcp_address:
            return None
        secret = read_secret(Path(config.tcp_secret_file).expanduser())
        return TcpBinding(config.tcp_address, secret, read_clients(Path(config.tcp_clients_file).expanduser()))

    def _worker_changed(self, feed: EventFeed, role: str, state: WorkerState) -> None:
        now = (role, state.phase, state.detail, state.pid)
        if now in self._told:
            return
        self._told = {told for told in self._told if told[0] != role} | {now}
        feed.emit("worker.state", role=role, state=state.phase, detail=state.detail[:256], pid=state.pid)

    async def _watchdog(self) -> None:
        """Fed by this loop, the one that answers sockets."""
        while self._notifier.watchdog_seconds:
            self._notifier.alive()
            await trio.sleep(self._notifier.watchdog_seconds / 3)

    async def _status_line(self, parts: Parts) -> None:
        last = ""
        while True:
            line = line_of(parts.memory, parts.live.state)
            if line != last:
                self._notifier.status(line)
                log.info("%s", line)
                last = line
            await trio.sleep(STATUS_SECONDS)

    def _topics(self, parts: Parts) -> Topics:
        memory, live, bulk = parts.memory, parts.live.state, parts.bulk.state
        connected = sum(session.route is not None for session in parts.book)
        return {
            "daemon": {
                "version": __version__, "pid": os.getpid(), "epoch": self._epoch, "protocol": PROTOCOL_VERSIONS[-1],
                "uptime_seconds": round(time.time() - self._began, 1),
            },
            "models": models_topic(live, bulk),
            "index": topic_of(memory),
            "queue": {
                "recalls_running": parts.recalls.active, "notes_waiting": parts.journal.waiting,
                "notes_dropped": parts.journal.dropped, "passages_to_embed": memory.backlog,
            },
            "memory": {
                "daemon_mb": round(psutil.Process().memory_info().rss / 1e6, 1),
                "live_worker_mb": rss_mb(live.pid), "bulk_worker_mb": rss_mb(bulk.pid),
            },
            "learning": parts.learner.topic(),
            "hooks": parts.hooks.topic(),
            "races": dict(parts.desk.counts()),
            "expected_ms": dict(parts.recalls.costs.table()),
            "sessions": {"open": len(parts.book), "connected": connected, "tokens_shown": parts.desk.tokens_shown},
            "paths": {
                "database": str(self._home.database), "index": str(self._home.index),
                "log_mb": round(memory.write_ahead.size_bytes / 1e6, 1),
                "log_limit_mb": round(memory.write_ahead.limit_bytes / 1e6, 1),
                "models": str(self._home.models), "config": self._config.source or str(self._home.config_file),
                "request_socket": self._endpoints.request, "event_socket": self._endpoints.events,
                "hook_socket": self._endpoints.hooks,
            },
        }  # fmt: skip


def models_topic(live: WorkerState, bulk: WorkerState) -> dict[str, str | int | float | bool | None]:
    """`state` is the live worker's; `phase` what it is doing, or why there is no model."""
    row = live.row()
    return {
        "state": row["state"], "phase": row["detail"], "model": row["model"], "runtime": row["runtime"],
        "dims": row["dims"], "fingerprint": row["fingerprint"], "bulk_state": bulk.phase, "bulk_phase": bulk.detail,
        "live_restarts": live.restarts, "bulk_restarts": bulk.restarts,
    }  # fmt: skip


def rss_mb(pid: int) -> float:
    try:
        return round(psutil.Process(pid).memory_info().rss / 1e6, 1) if pid else 0.0
    except psutil.Error:
        return 0.0
