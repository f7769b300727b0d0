"""How messages name values, and what was probably meant by a misspelt word."""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

SYNONYMS = {
    "attention": "sdpa",
    "bf16": "bfloat16",
    "channels_first": "nchw",
    "channels_last": "nhwc",
    "convolution": "conv",
    "f16": "float16",
    "f32": "float32",
    "float": "float32",
    "fp16": "float16",
    "fp32": "float32",
    "gemm": "matmul",
    "half": "float16",
    "linear": "matmul",
    "silu": "swish",
}
"""Other names that engineers have for a value or an operation, where no spelling distance would find it."""


_LONGEST_MISSPELLING = 60
"""Comparing takes time by the square of the length."""


def closest(word: str, known: Iterable[str]) -> list[str]:
    """The known words that may have been meant, best first, at most two. Case and punctuation don't count."""
    if len(word) > _LONGEST_MISSPELLING:
        return []
    words = list(known)
    folded = {_fold(k): k for k in words}
    wanted = _fold(word.removeprefix("torch."))
    for synonym, meaning in SYNONYMS.items():
        if _fold(synonym) == wanted and meaning in words:
            return [meaning]
    if wanted in folded:
        return [folded[wanted]]
    likeness = {known: SequenceMatcher(None, wanted, known).ratio() for known in folded}
    best = max(likeness.values(), default=0.0)
    near = sorted((k for k, ratio in likeness.items() if ratio >= max(0.6, best - 0.1)), key=lambda k: -likeness[k])
    return [folded[k] for k in near[:2]]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` to end a message with, empty where nothing known is close."""
    matches = closest(word, known)
    return f"; did you mean {' or '.join(f'`{m}`' for m in matches)}?" if matches else ""


def listed(words: Iterable[str]) -> str:
    """Words as an enumeration in prose."""
    return ", ".join(f"`{w}`" for w in words)


def clip(text: str, width: int = 60) -> str:
    """A text on one line, cut where it is longer than a message can bear."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return line if len(line) <= width else f"{line[: width - 3]}..."


def _fold(word: str) -> str:
    return re.sub(r"[\W_]", "", word.lower())


def spell(value: object) -> str:
    """A value in a sentence."""
    if value is None:
        return "nothing"
    if value == "":
        return "empty text"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    return f"`{clip(as_written(value))}`"


def as_written(value: object) -> str:
    """A scalar as a job file would have it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
