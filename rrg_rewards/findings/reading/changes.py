"""Decide which words state the change of a finding since an earlier examination, and of which findings."""

from collections.abc import Sequence
from itertools import takewhile

from rrg_rewards.findings.knowledge.load import cue_words
from rrg_rewards.findings.reading.finding import Attributes
from rrg_rewards.findings.reading.modifiers import PLACED, Modifier, modifier_reader
from rrg_rewards.findings.reading.phrases import cue_bits

_GROWTH = (("change", "increased"), ("change", "decreased"))
# Words that state an amount as often as a change: "increased density".
_RELATIVE = ("increase", "decrease", "reduc", "diminish", "larger", "smaller", "bigger")
_SIZES_OF_OTHERS = ("larger", "smaller", "bigger")
# "A density increase"
_AMOUNT_NOUNS = frozenset({"increase", "decrease", "reduction"})
# Bit of the words that are amounts wherever they stand.
_AMOUNTS = 1
# Number of words before and after such a word in which an amount is looked for.
_BEFORE, _AFTER = 6, 4
# Number of words before the name of an absent finding in which "previously" says that it was there.
_FORMER_REACH = 4
_JOINTS = frozenset({"and", "or", "/"})
# After these comes what is said of several findings: "effusion and edema are stable", "effusion and edema, stable".
_PLURAL = frozenset({"are", "were", "have", "remain", "persist", "appear", ","})


def is_compared(tokens: Sequence[str]) -> bool:
    """Whether a sentence names an earlier examination, or says that something is so now.

    Example:
        >>> is_compared("larger than on the previous study".split()), is_compared("larger than 5 mm".split())
        (True, False)
    """
    earlier = cue_words("comparisons", "earlier", "today")
    # "Compared to the left side"
    sides = cue_words("comparisons", "sides")
    return any(
        token in earlier and not (token.startswith("compar") and not sides.isdisjoint(tokens[i + 1 : i + 1 + _AFTER]))
        for i, token in enumerate(tokens)
    )


def without_amounts(
    tokens: Sequence[str], modifiers: list[Modifier], names: Sequence[tuple[int, int]]
) -> list[Modifier]:
    """Return modifiers without the words that state an amount, or a part of a name, instead of a change.

    "Heart size is increased" and "increased density" state no change, unless the sentence names an earlier examination.

    Args:
        tokens: Tokens of the sentence.
        modifiers: Its modifiers.
        names: First token of the name of each finding, and the token after it.

    Example:
        >>> tokens = "increased density and increased effusion".split()
        >>> [found.start for found in without_amounts(tokens, modifier_reader().modifiers(tokens), [])]
        [3]
    """
    if not any(map(_is_growth, modifiers)) or is_compared(tokens):
        return modifiers
    return [found for found in modifiers if not (_is_growth(found) and _is_amount(tokens, found, names))]


def _is_growth(modifier: Modifier) -> bool:
    return modifier.values[0] in _GROWTH


def _is_amount(tokens: Sequence[str], modifier: Modifier, names: Sequence[tuple[int, int]]) -> bool:
    """Whether a word such as "increased" is a part of a name, or states an amount of a word next to it."""
    start, end = modifier.start, modifier.end
    if tokens[start] in ("more", "less") or any(first <= start and end <= last for first, last in names):
        return True
    if tokens[start] in _SIZES_OF_OTHERS and tokens[end : end + 1] and tokens[end][0].isdigit():
        # "Nodules, the larger 5 mm"
        return True
    if not any(token.startswith(_RELATIVE) for token in tokens[start:end]):
        return False
    following = tokens[end : end + 1]
    if tokens[end - 1] in _AMOUNT_NOUNS:
        if following not in (["in"], ["of"]):
            return True
    elif following == ["in"] and not cue_words("comparisons", "extents").isdisjoint(tokens[end + 1 : end + 2]):
        return False
    codes, separators = cue_bits("comparisons", "amounts", "amounts_after"), cue_words("connectives", "separators")
    before = takewhile(lambda token: token not in separators, reversed(tokens[max(0, start - _BEFORE) : start]))
    after = takewhile(lambda token: token not in separators, tokens[end : end + _AFTER])
    return any(codes[token] & _AMOUNTS for token in before) or any(codes[token] for token in after)


def with_presence(attributes: Attributes, is_absent: bool, tokens: Sequence[str], start: int) -> Attributes:
    """Return attributes of which the change fits the presence: only absent findings are resolved, and only that.

    Args:
        attributes: Attributes of a finding.
        is_absent: Whether the finding is absent.
        tokens: Tokens of the sentence.
        start: First token of its name.

    Example:
        >>> tokens = "the previously seen nodule is not visible".split()
        >>> with_presence(Attributes(), True, tokens, 3), with_presence(Attributes(change="new"), True, ["nodule"], 0)
        (Attributes(change='resolved'), Attributes())
    """
    change = attributes.change
    if is_absent:
        former = cue_words("comparisons", "former").intersection(tokens[max(0, start - _FORMER_REACH) : start])
        change = "resolved" if former or change == "resolved" else None
    elif change == "resolved":
        # What has not gone is less: "resolution of most of the effusion".
        change = "decreased"
    return attributes if change == attributes.change else attributes._replace(change=change)


def share_changes(
    tokens: Sequence[str], names: Sequence[tuple[int, int]], stated: Sequence[Modifier | None], result: list[Attributes]
) -> None:
    """Give the findings of a list the change of the first, or what a plural verb after the last says of all.

    "Unchanged effusion and atelectasis"; "left effusion and right atelectasis have increased". Between the findings may
    stand only words such as "and" and places: a degree or an article begins another statement.

    Args:
        tokens: Tokens of the sentence.
        names: First token of the name of each finding, and the token after it.
        stated: The modifier that states the change of each finding; ``None`` for none.
        result: Attributes of each finding; changed in place.
    """
    if not any(stated):
        return
    listed = _listed(tokens, names)
    leads = [modifier is not None and modifier.start < name[0] for modifier, name in zip(stated, names, strict=True)]
    # "No change with cardiomegaly and mild edema"
    is_of_all = any(found and "with" in tokens[found.end : names[0][0]] for found in stated[:1])
    for k, is_listed in enumerate(listed):
        if (is_listed or is_of_all) and leads[k] and result[k + 1].change is None:
            result[k + 1] = result[k + 1]._replace(change=result[k].change)
            leads[k + 1] = True
    is_predicate = False
    for k in range(len(listed) - 1, -1, -1):
        end = names[k + 1][1]
        is_predicate = listed[k] and (is_predicate or not (leads[k + 1] or _PLURAL.isdisjoint(tokens[end : end + 1])))
        if is_predicate and result[k].change is None:
            result[k] = result[k]._replace(change=result[k + 1].change)


def _listed(tokens: Sequence[str], names: Sequence[tuple[int, int]]) -> list[bool]:
    """Return, for each finding but the last, whether it is in one list with the next: a comma joins before an "and"."""
    listed = [False] * (len(names) - 1)
    for k in range(len(listed) - 1, -1, -1):
        between = tokens[names[k][1] : names[k + 1][0]]
        is_joined = not _JOINTS.isdisjoint(between) or ("," in between and listed[k + 1 : k + 2] == [True])
        words = [token for token in between if token != "," and token not in _JOINTS]
        places = [found for found in modifier_reader().modifiers(words) if PLACED.issuperset(dict(found.values))]
        listed[k] = is_joined and len(words) == sum(place.end - place.start for place in places)
    return listed
