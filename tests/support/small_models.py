"""Small random encoders in sentence-transformers' format, built without a network, and how the library encodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = """the is a deploy needs staging key first port moved to query passage search index what when : . ?"""
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def build(folder: Path, *, pooling: str = "mean", dense: bool = False, prompts: dict[str, str] | None = None) -> Path:
    """A BERT of 2 layers and 32 dims with random weights; `dense` puts one more module on top (24 dims)."""
    torch.manual_seed(11)
    bare = folder / "bare"
    config = BertConfig(
        vocab_size=200,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=128,
        initializer_range=0.3,  # wide enough for texts to differ
    )
    BertModel(config).eval().save_pretrained(str(bare))
    _tokenizer().save_pretrained(str(bare))
    transformer = Transformer(str(bare), max_seq_length=64)
    modules: list[Any] = [transformer, Pooling(32, pooling_mode=pooling)]
    modules += [Dense(32, 24)] if dense else []
    SentenceTransformer(modules=[*modules, Normalize()], prompts=prompts, device="cpu").save(str(folder / "model"))
    return folder / "model"


def encode(folder: Path, texts: list[str], *, as_query: bool, **options: Any) -> np.ndarray:
    """(n, d) unit rows, as the library itself encodes in fp32."""
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    method = model.encode_query if as_query else model.encode_document
    return np.asarray(method(texts, normalize_embeddings=True, show_progress_bar=False, **options))


def _tokenizer() -> PreTrainedTokenizerFast:
    characters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    vocabulary = dict.fromkeys([*SPECIAL, *WORDS.split(), *characters, *("##" + each for each in characters)])
    numbered = {piece: number for number, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(numbered, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=128,
    )
