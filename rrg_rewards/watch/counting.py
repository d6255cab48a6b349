"""Counting of properties of reports, rewards and metrics."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TypeGuard

from rrg_rewards.labelers.base import Labeler, label_reports
from rrg_rewards.schemas.labels import is_no_abnormality
from rrg_rewards.watch.counts import Counts
from rrg_rewards.watch.findings import count_findings, is_hedged
from rrg_rewards.watch.instructions import find_instructions

__all__ = ["count_found", "count_pairs", "count_texts", "count_values"]

_WORD = re.compile(r"\w+")
_LETTERS = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+")
_SENTENCE_END = re.compile(r"[.!?:](?=\s|$)|[\n;]")


def count_texts(counts: Counts, side: str, texts: Iterable[str], n_gram: int) -> None:
    """Count words, repeated, hedged and equal sentences, distinct n-grams and reports, and instructions to a judge.

    Sentences, and whole reports as one sentence, are compared without case, punctuation and the values of numbers.
    The series ``words`` counts parts between spaces; the vocabulary consists of sequences of letters, without case.

    Args:
        counts: The counts to change.
        side: ``"completions"`` or ``"references"``, the prefix of the names.
        texts: Reports.
        n_gram: Number of words of the counted n-grams.

    Example:
        >>> counts = Counts()
        >>> count_texts(counts, "completions", ["No effusion. No effusion."], n_gram=2)
        >>> counts.closed()["completions/distinct_ngrams"], counts.closed()["completions/repeated_sentences"]
        ((2.0, 3.0), (1.0, 2.0))
    """
    vocabulary: Counter[str] = Counter()
    for text in texts:
        vocabulary.update(_LETTERS.findall(text.lower()))
        words = _WORD.findall(text.lower())
        grams = [" ".join(words[start : start + n_gram]) for start in range(len(words) - n_gram + 1)]
        sentences = [" ".join(_WORD.findall(part)) for part in _SENTENCE_END.split(text.lower())]
        sentences = [sentence for sentence in sentences if sentence]
        counts.add(f"{side}/words", len(text.split()), 1)
        counts.add(f"{side}/repeated_sentences", len(sentences) - len(set(sentences)), len(sentences))
        counts.add(f"{side}/hedged_sentences", sum(map(is_hedged, sentences)), len(sentences))
        counts.add(f"{side}/instructions", bool(find_instructions(text)), 1)
        same = {_hash(_NUMBER.sub("0", text)) for text in (*sentences, " ".join(words))}
        counts.tallies.setdefault(side, Counter()).update(same)
        counts.add_distinct(f"{side}/distinct_ngrams", list(map(_hash, grams)))
        counts.add_distinct(f"{side}/distinct_reports", [_hash(" ".join(words))])
    counts.words.setdefault(side, Counter()).update({_hash(word): number for word, number in vocabulary.items()})


def count_found(counts: Counts, side: str, texts: Iterable[str]) -> None:
    """Count findings, hedged findings and sizes; see :func:`rrg_rewards.watch.findings.count_findings`.

    Args:
        counts: The counts to change.
        side: ``"completions"`` or ``"references"``, the prefix of the names.
        texts: Reports.
    """
    for text, number in Counter(texts).items():
        for series, count in zip(("findings", "hedged_findings", "sizes"), count_findings(text), strict=True):
            counts.add(f"{side}/{series}", count * number, number)


def _hash(text: str) -> int:
    # Not hash(), which differs between processes.
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def count_pairs(
    counts: Counts, labeler: Labeler, completions: Sequence[str | None], references: Sequence[str | None]
) -> list[float | None]:
    """Count positive labels of completions and references, and normal completions with an abnormal reference.

    Args:
        counts: The counts to change.
        labeler: Labeler of completions and references.
        completions: ``N`` completions.
        references: ``N`` references.

    Returns:
        F1 of the labels of each completion and its reference; 1 if both have no positive label; ``None`` if a text is
        missing, or the labeler failed on it.
    """
    chosen = [column for column, label in enumerate(labeler.labels) if not is_no_abnormality(label)]
    names = [labeler.labels[column] for column in chosen]
    # Label each distinct text once. All completions of a group have the same reference, and completions may repeat.
    texts = list(dict.fromkeys(text for text in (*completions, *references) if text is not None))
    rows = _label_rows(labeler, texts, chosen)
    scores: list[float | None] = []
    for completion, reference in zip(completions, references, strict=True):
        own, wanted = rows[completion], rows[reference]
        if own is not None:
            _count_positives(counts, "completions", names, own)
        if wanted is not None:
            _count_positives(counts, "references", names, wanted)
        if own is None or wanted is None:
            scores.append(None)
            continue
        if any(wanted):
            counts.add("completions/normal_reports", not any(own), 1)
        positives = sum(own) + sum(wanted)
        hits = sum(one and other for one, other in zip(own, wanted, strict=True))
        scores.append(2 * hits / positives if positives else 1.0)
    return scores


def _label_rows(labeler: Labeler, texts: Sequence[str], chosen: Sequence[int]) -> dict[str | None, list[bool] | None]:
    """Return the chosen labels of each text; ``None`` for a missing text, or if the labeler failed."""
    rows: dict[str | None, list[bool] | None] = {None: None}
    if texts:
        labels, failures = label_reports(labeler, texts)
        rows.update(zip(texts, labels[:, list(chosen)].tolist(), strict=True))
        rows.update({text: None for text, failure in zip(texts, failures or (), strict=False) if failure is not None})
    return rows


def _count_positives(counts: Counts, side: str, names: Sequence[str], row: Sequence[bool]) -> None:
    counts.add(f"{side}/positives", sum(row), 1)
    for name, positive in zip(names, row, strict=True):
        counts.add(f"{side}/positives/{name}", positive, 1)


def count_values(
    counts: Counts, rewards: Mapping[str, Sequence[float | None]], metrics: Mapping[str, Sequence[float | None]]
) -> None:
    """Count rewards, held-out metrics, missing values and products of rewards and metrics.

    Args:
        counts: The counts to change.
        rewards: ``N`` rewards by name; ``None`` or NaN for unscorable completions.
        metrics: ``N`` values of held-out metrics by name; higher is better.
    """
    for kind, columns in (("rewards", rewards), ("metrics", metrics)):
        for name, values in columns.items():
            known = [float(value) for value in values if _is_known(value)]
            counts.add(f"{kind}/{name}", math.fsum(known), len(known))
            counts.add(f"{kind}_squared/{name}", math.fsum(value * value for value in known), len(known))
            if kind == "rewards":
                counts.add(f"completions/unscorable/{name}", len(values) - len(known), len(values))
    for reward, given in rewards.items():
        for metric, held_out in metrics.items():
            pairs = [
                (float(one), float(other))
                for one, other in zip(given, held_out, strict=True)
                if _is_known(one) and _is_known(other)
            ]
            moments = [(1.0, x, y, x * x, y * y, x * y) for x, y in pairs]
            counts.add(
                f"agreement/{reward}/{metric}", *map(math.fsum, zip(*moments, strict=True)) if pairs else [0] * 6
            )


def _is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and not math.isnan(value)
