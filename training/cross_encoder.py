"""Trains the default cross-encoder: the packaged encoder's lowest layers and a head, on permissive pairs.

    python -m training.cross_encoder --data DATA --out FILE [--layers N] [--steps N] [--chats N] [--work DIR]

FILE gets the differences to the packaged weights (`models/reranker_default.py`), FILE's sibling .json its provenance. A
step takes LISTS questions, each with one answer and NEGATIVES passages that our own lanes put beside it, and lowers the
cross-entropy of the answer among them; a little of the binary one keeps the logits' zero where "relevant" begins. The
word vectors stay as they are: they are shared with the packaged encoder, and 20,000 questions would not move them well.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from recalld_daemon.models.files import find_folder
from recalld_daemon.models.reranker_default import HEAD, Learned, bare_module, base_hash, save_learned
from recalld_daemon.models.reranker_torch import FirstToken
from training.cross_lessons import SEED, Lesson, Miner, both_sides, drawn
from training.permissive import LICENCES

LAYERS = 3
CHATS = 14
STEPS = 320
LISTS, NEGATIVES = 8, 5  # per step
TOKENS = 56  # of a pair in training: a step's cost goes by them
MICRO = 32  # pairs of one pass, sorted by length: a quarter less padding
RATE, HEAD_RATE = 4e-4, 2e-3  # AdamW's; a fresh head may move faster than a trained body
WARM_UP = 0.08  # of the steps
DECAY = 0.01
BINARY = 0.2  # weight of the binary cross-entropy
JUDGED = 4  # every so many held-out questions are judged at the end
EVEN = 0.6  # a kind of question is drawn in proportion to its number to this power
FROZEN = ("bert.embeddings.word_embeddings", "bert.embeddings.position_embeddings")

Batch = dict[str, torch.Tensor]


class Student:
    """The module in training, and its tokenizer."""

    def __init__(self, layers: int) -> None:
        self.folder = find_folder("default", allow_download=False)
        self.layers = layers
        self.module: Any = bare_module(self.folder, layers).eval()  # one pass over the lessons needs no dropout
        self._short = FirstToken(self.module)  # the last layer for the head's token alone: a third less to compute
        self.before = {name: value.detach().clone() for name, value in self.module.state_dict().items()}
        self._tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(TOKENS, strategy="longest_first")
        self._tokenizer.enable_padding(pad_to_multiple_of=8)
        for name, value in self.module.named_parameters():
            value.requires_grad = not name.startswith(FROZEN)

    def logits(self, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
        """(n,) float32, in order."""
        order = sorted(range(len(pairs)), key=lambda at: len(pairs[at][1]))
        parts = [self._pass([pairs[at] for at in order[first : first + MICRO]]) for first in
                 range(0, len(order), MICRO)]  # fmt: skip
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return torch.cat(parts)[back]

    def _pass(self, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
        found = self._tokenizer.encode_batch([*pairs])
        batch: Batch = {
            "input_ids": torch.tensor([one.ids for one in found]),
            "attention_mask": torch.tensor([one.attention_mask for one in found]),
            "token_type_ids": torch.tensor([one.type_ids for one in found]),
        }
        with torch.autocast("cpu", torch.bfloat16):
            logits: torch.Tensor = self._short(**batch)[:, 0]
        return logits.float()

    def learned(self) -> Learned:
        """What training changed."""
        now = self.module.state_dict()
        moved = {
            name: (now[name] - self.before[name]).numpy()
            for name in now
            if not torch.equal(now[name], self.before[name])
        }
        whole = {name: now[name].numpy() for name in now if name.startswith(HEAD)}
        return Learned(
            self.layers,
            base_hash(self.folder),
            {name: value for name, value in moved.items() if name not in whole},
            whole,
        )


def main() -> None:
    """Mine, train, judge on what was held out, write."""
    options = _options()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    began = time.monotonic()
    taught, held = mined(options)
    print(f"{len(taught)} lessons, {len(held)} held out, {time.monotonic() - began:.0f} s", flush=True)
    student = Student(options.layers)
    losses = train(student, taught, options.steps)
    save_learned(student.learned(), options.out)
    report = {
        "made_by": f"python -m training.cross_encoder --layers {options.layers} --steps {options.steps}"
        f" --chats {options.chats}",
        "trained_on": LICENCES | ({"chats": f"{options.chats} made-up conversations"} if options.chats else {}),
        "lessons": dict(sorted(Counter(lesson.kind for lesson in taught).items())),
        "seed": SEED,
        "losses": losses,
        "held_out_mrr": judged(student, held[::JUDGED]),
        "minutes": round((time.monotonic() - began) / 60, 1),
        "torch": torch.__version__,
    }
    options.out.with_suffix(".json").write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print(json.dumps(report, indent=2))


def mined(options: argparse.Namespace) -> tuple[list[Lesson], list[Lesson]]:
    """Lessons to train on, and held-out ones."""
    chats = []
    if options.chats:
        from training.chats import chat_pools

        chats = chat_pools(options.chats, SEED)
    options.work.mkdir(parents=True, exist_ok=True)
    miner = Miner(options.work)
    left, right = (
        [lesson for pool in pools for lesson in miner.lessons(pool)] for pools in both_sides(options.data, chats)
    )
    return left, right


def train(student: Student, taught: Sequence[Lesson], steps: int) -> list[float]:
    """The mean loss of each twentieth of the way."""
    rng = np.random.default_rng(SEED)
    optimizer, schedule = _optimizer(student.module, steps)
    chances = _chances(taught)
    losses: list[float] = []
    for step in range(steps):
        chosen = [taught[int(at)] for at in rng.choice(len(taught), LISTS, p=chances)]
        loss = _loss(student, [(lesson.query, drawn(lesson, NEGATIVES, rng)) for lesson in chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(student.module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if (step + 1) % 25 == 0:
            print(f"step {step + 1}/{steps} loss {np.mean(losses[-25:]):.4f}", flush=True)
    return [round(float(part.mean()), 4) for part in np.array_split(np.array(losses), 20) if len(part)]


def _loss(student: Student, lists: Sequence[tuple[str, tuple[str, ...]]]) -> torch.Tensor:
    """Each list's first text is the answer."""
    flat = student.logits([(query, text) for query, texts in lists for text in texts])
    total = flat.new_zeros(())
    first = 0
    for _, texts in lists:
        logits = flat[first : first + len(texts)]
        right = torch.zeros_like(logits)
        right[0] = 1.0
        total = total - logits.log_softmax(0)[0]
        total = total + BINARY * torch.nn.functional.binary_cross_entropy_with_logits(
            logits, right, pos_weight=logits.new_tensor(float(NEGATIVES))
        )
        first += len(texts)
    return total / len(lists)


def judged(student: Student, held: Sequence[Lesson]) -> dict[str, dict[str, float]]:
    """By kind: the mean reciprocal rank of the best answer in its list, as the lanes ordered them and by the logit."""
    ranks: dict[str, list[float]] = {}
    with torch.inference_mode():
        for lesson in held:
            logits = student.logits([(lesson.query, text) for text in (*lesson.golds, *lesson.negatives)]).numpy()
            best = logits[: len(lesson.golds)].max()
            ranks.setdefault(lesson.kind, []).append(1.0 / (1.0 + float((logits[len(lesson.golds) :] > best).sum())))
    return {kind: {"mrr": round(float(np.mean(rows)), 4), "n": len(rows)} for kind, rows in sorted(ranks.items())}


def _optimizer(module: Any, steps: int) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
    named = [(name, value) for name, value in module.named_parameters() if value.requires_grad]
    body = [value for name, value in named if not name.startswith(HEAD) and value.ndim > 1]
    plain = [value for name, value in named if not name.startswith(HEAD) and value.ndim == 1]
    head = [value for name, value in named if name.startswith(HEAD)]
    optimizer = torch.optim.AdamW(
        [
            {"params": body, "lr": RATE, "weight_decay": DECAY},
            {"params": plain, "lr": RATE, "weight_decay": 0.0},
            {"params": head, "lr": HEAD_RATE, "weight_decay": 0.0},
        ]
    )
    warm = max(1, int(WARM_UP * steps))
    shape = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, max(0.0, (steps - step) / max(1, steps - warm)))
    )
    return optimizer, shape


def _chances(taught: Sequence[Lesson]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(n,) how often each lesson is drawn."""
    counts = Counter(lesson.kind for lesson in taught)
    raw = np.array([counts[lesson.kind] ** (EVEN - 1.0) for lesson in taught])
    return raw / raw.sum()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.cross_encoder", description=str(__doc__).split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="directory that holds ir/ and real/")
    parser.add_argument("--out", type=Path, required=True, help="the artefact, a .safetensors file")
    parser.add_argument("--work", type=Path, default=Path("cross-work"), help="encodings and stores, kept between runs")
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--chats", type=int, default=CHATS, help="made-up conversations to train on as well")
    return parser.parse_args()


if __name__ == "__main__":
    main()
