"""Text files as sequences of tokens, and batches of them with masked words."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

NUM_SPECIAL, TWO_SEGMENTS, MASKED, REPLACED = 3, 0.9, 0.15, 0.85


def find_files(paths: Iterable[str]) -> list[Path]:
    """Text files by name; of a folder all ``*.txt`` in it and below.

    Raises:
        FileNotFoundError: If there is no such file, or a folder has none.
    """
    every_file = []
    for path in map(Path, paths):
        files = sorted(path.rglob('*.txt')) if path.is_dir() else [path] * path.is_file()
        if not files:
            raise FileNotFoundError(f'TEXT {path}: no such file, or a folder without *.txt')
        every_file += files
    return every_file


def read_documents(files: Iterable[Path]) -> Iterator[str]:
    """Texts between blank lines; one file at a time is in memory.

    Raises:
        ValueError: If a file is no UTF-8 text.
    """
    for file in files:
        try:
            text = file.read_text(encoding='utf-8')
        except UnicodeDecodeError as error:
            raise ValueError(f'TEXT {file} is no UTF-8 text: byte {error.start} cannot be read') from error
        yield from filter(str.strip, re.split(r'\n\s*\n', text))


class Corpus:
    """Sequences of tokens without special ones. Documents are cut into sequences, and none has parts of two.

    Args:
        documents: The texts.
        tokenizer: The tokenizer.
        length: Most tokens of a sequence with its special ones.

    Raises:
        ValueError: If there are fewer than 2 sequences.
    """

    def __init__(self, documents: Iterable[str], tokenizer: Any, length: int):
        parts, ends = [], [0]
        for text in documents:
            parts.append(np.asarray(tokenizer(text, add_special_tokens=False)['input_ids'], np.uint16))
            start, size = ends[-1], len(parts[-1])
            ends += [start + min(at + length - NUM_SPECIAL, size) for at in range(0, size, length - NUM_SPECIAL)]
        if len(ends) < 3:
            raise ValueError(f'TEXT: {len(ends) - 1} sequences of up to {length} tokens; at least 2 are needed')
        self.tokens, self.ends = np.concatenate(parts), np.asarray(ends)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, index: int) -> list[int]:
        return self.tokens[self.ends[index] : self.ends[index + 1]].tolist()


def make_batch(sequences: Sequence[list[int]], tokenizer: Any) -> dict[str, Tensor]:
    """Sequences with special tokens, padded ``(B, N)``; nine of ten are in two segments, as in ELECTRA."""
    start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    rows = dict(input_ids=[], token_type_ids=[])
    for ids, is_cut in zip(sequences, torch.rand(len(sequences)) < TWO_SEGMENTS, strict=True):
        middle = len(ids) // 2 if is_cut else len(ids)
        first, second = [start, *ids[:middle], end], [*ids[middle:], end] * int(is_cut)
        rows['input_ids'].append(first + second)
        rows['token_type_ids'].append([0] * len(first) + [1] * len(second))
    return dict(tokenizer.pad(rows, return_tensors='pt'))


def mask_words(ids_BN: Tensor, tokenizer: Any) -> tuple[Tensor, Tensor]:
    """Masks tokens at random, as ELECTRA does: 15 % of each sequence, at least one; 85 % of these become ``[MASK]``.

    Args:
        ids_BN: Tokens; special ones are never masked.
        tokenizer: The tokenizer.

    Returns:
        Tokens with masks, and True for the tokens that are to be predicted ``(B, N)``.
    """
    can = ~torch.isin(ids_BN, torch.tensor(tokenizer.all_special_ids))
    order = torch.rand(ids_BN.shape).masked_fill(~can, 2.0).argsort(1).argsort(1)
    chosen = can & (order < (MASKED * can.sum(1, keepdim=True)).round().clamp(min=1))
    return ids_BN.masked_fill(chosen & (torch.rand(ids_BN.shape) < REPLACED), tokenizer.mask_token_id), chosen
