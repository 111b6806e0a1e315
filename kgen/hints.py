"""Hints for a word that nothing answers to: what there is, or what is spelled like it where there is much."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

FEW = 16
"""Words that are listed whole."""
CLOSE = 0.6
"""Of the letters of two words that are alike; above it one may have been meant for the other."""


def listed(word: str, known: Iterable[str]) -> str:
    """The known words, or those close to `word`.

    >>> listed("reverze", ["dtype", "reverse"]), listed("reverze", [f"n{i}" for i in range(20)] + ["reverse"])
    ('dtype, reverse', 'reverse, and 20 more')
    """
    words = list(dict.fromkeys(known))
    if len(words) <= FEW:
        return ", ".join(words) or "none"
    close = difflib.get_close_matches(word, words, 3, CLOSE) or words[:3]
    return f"{', '.join(close)}, and {len(words) - len(close)} more"


def owners(name: str, stems: Iterable[str]) -> str:
    """Kernels whose specialization a `name` may be meant for: those spelled like as many of its words as they have.

    >>> stems = ["lmha", "lmha_chunk", "softmax", *(f"norm{i}" for i in range(20))]
    >>> owners("lmhaa_e64_f32", stems), owners("x", stems)
    ('close to it: lmha', '`kgen list --kernels` names all kernels')
    """
    known = sorted(stems)
    if len(known) <= FEW:
        return f"known: {listed(name, known)}"
    words = name.lower().split("_")
    alike = {s: difflib.SequenceMatcher(None, "_".join(words[: s.count("_") + 1]), s).ratio() for s in known}
    close = [s for s in sorted(known, key=lambda s: -alike[s]) if alike[s] >= CLOSE][:3]
    return f"close to it: {', '.join(close)}" if close else "`kgen list --kernels` names all kernels"
