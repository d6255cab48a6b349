"""Split a sentence into statements, and recognise statements about organs other than the lungs."""

from bisect import bisect_left
from collections.abc import Collection, Sequence

from rrg_rewards.findings.knowledge.load import cue_words
from rrg_rewards.findings.reading.phrases import cue_bits, union

_WORD_LISTS = ("anatomy", "unnamed", "elsewhere", "lungs", "verbs", "placing", "involved")
_ANATOMY, _UNNAMED, _ELSEWHERE, _LUNGS, _VERB, _PLACING, _INVOLVED = (1 << i for i in range(len(_WORD_LISTS)))
# Number of words at the start of a clause that can mark it as a continuation of the preceding clause.
_CONTINUATION_REACH = 3


def statement_numbers(tokens: Sequence[str], named: Collection[int]) -> list[int]:
    """Return, for each token of a sentence, the number of the statement that contains it.

    A comma or a word such as "and" ends a statement if there is a verb both before and after it, and if the subject
    after it is a finding or an organ: "nodules are seen in the left lung, both hila are not large" contains two
    statements.

    Args:
        tokens: Tokens of one sentence.
        named: Indices of the tokens that name findings.

    Example:
        >>> tokens = "nodule is seen on the left , both hila are normal".split()
        >>> statement_numbers(tokens, {0})
        [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    """
    numbers = [0] * len(tokens)
    enders = cue_words("connectives", "enders")
    if enders.isdisjoint(tokens):
        return numbers
    codes = _codes(tokens)
    verbs = [i for i, code in enumerate(codes) if code & _VERB]
    if not verbs:
        return numbers
    if enders.isdisjoint(tokens[verbs[0] : verbs[-1]]):
        # No second statement begins after the first verb.
        return numbers
    number, has_verb, start = 0, False, 0
    for end in [*[i for i, token in enumerate(tokens) if token in enders], len(tokens)]:
        verb = _first_verb(codes, verbs, start, end)
        is_new = has_verb and verb > 0 and _has_subject(tokens, codes, start, start + verb, named)
        if is_new and not _any(codes[start:end], _INVOLVED):
            number, has_verb = number + 1, False
        has_verb = has_verb or verb >= 0
        numbers[start : end + 1] = [number] * (min(end + 1, len(tokens)) - start)
        start = end + 1
    return numbers


def _codes(tokens: Sequence[str]) -> list[int]:
    return list(map(cue_bits("statements", *_WORD_LISTS).__getitem__, tokens))


def _any(codes: Sequence[int], bits: int) -> bool:
    return bool(union(codes) & bits)


def _first_verb(codes: Sequence[int], verbs: Sequence[int], start: int, end: int) -> int:
    """Return the place of the first verb in a clause, or -1; that of a mere location ("the lung is in") is none."""
    for i in verbs[bisect_left(verbs, start) : bisect_left(verbs, end)]:
        if not (_any(codes[i + 1 : min(end, i + 2)], _PLACING) and _any(codes[start:i], _ANATOMY)):
            return i - start
    return -1


def _has_subject(tokens: Sequence[str], codes: Sequence[int], start: int, verb: int, named: Collection[int]) -> bool:
    """Whether the words from ``start`` to a verb name a finding, or an organ without continuing the last clause."""
    if any(i in named for i in range(start, verb)):
        return True
    first = tokens[start : min(verb, start + _CONTINUATION_REACH)]
    return _any(codes[start:verb], _ANATOMY | _UNNAMED) and cue_words("continuations", "clause").isdisjoint(first)


def elsewhere_tokens(tokens: Sequence[str], named: Collection[int]) -> set[int]:
    """Return the tokens of the statements that name an organ outside the lungs and no part of the lungs.

    Args:
        tokens: Tokens of one sentence.
        named: Indices of the tokens that name findings.

    Example:
        >>> sorted(elsewhere_tokens("low density in the ganglia".split(), {1}))
        [0, 1, 2, 3, 4]
    """
    codes = _codes(tokens)
    if not _any(codes, _ELSEWHERE):
        return set()
    numbers = statement_numbers(tokens, named)
    organs: dict[int, int] = {}
    for code, number in zip(codes, numbers, strict=True):
        organs[number] = organs.get(number, 0) | code & (_ELSEWHERE | _LUNGS)
    return {i for i, number in enumerate(numbers) if organs[number] == _ELSEWHERE}
