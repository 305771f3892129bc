"""Small random cross-encoders in sentence-transformers' format, built without a network, and how the library scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sentence_transformers import CrossEncoder
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = "the is a deploy needs staging key first port moved to query passage search index what when where : . ?"
QUERY = "where is the staging key"
TEXTS = [
    "the deploy needs a staging key first",
    "port moved",
    "what is the search index when the port moved to the query : the passage needs the index first .",
    "zebra",
    "key " * 30,
    "the the the",
]


def build(folder: Path, *, labels: int = 1, names: dict[int, str] | None = None) -> Path:
    """A BERT of 2 layers and 32 dims with random weights, saved by the library."""
    torch.manual_seed(5)
    bare = folder / "bare"
    config = BertConfig(
        vocab_size=200,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=128,
        num_labels=labels,
        initializer_range=0.3,  # wide enough for pairs to differ
    )
    if names:
        config.id2label, config.label2id = names, {name: number for number, name in names.items()}
    BertForSequenceClassification(config).eval().save_pretrained(str(bare))
    _tokenizer().save_pretrained(str(bare))
    CrossEncoder(str(bare), device="cpu", local_files_only=True).save_pretrained(str(folder / "model"))
    return folder / "model"


def predict(folder: Path, query: str, texts: list[str]) -> np.ndarray:
    """(n,) or (n, labels) logits, as the library itself has them in fp32."""
    model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
    pairs = [(query, text) for text in texts]
    return np.asarray(model.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False))


def _tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = dict.fromkeys([*SPECIAL, *WORDS.split(), *"abcdefghijklmnopqrstuvwxyz"])
    numbered = {piece: number for number, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(numbered, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", numbered["[CLS]"]), ("[SEP]", numbered["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=128,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
