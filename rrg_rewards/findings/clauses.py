"""Where one statement of a sentence ends and the next begins, and which statements are about other organs."""

import re
from collections.abc import Collection, Sequence

__all__ = ["is_elsewhere", "statements"]

_VERBS = frozenset({"is", "are", "was", "were", "can", "has", "have", "shows", "show", "appears", "appear", "remains"})
# A clause that begins so goes on about what was named before: "the larger one is in the right lower lobe".
_ONWARD = frozenset(
    {"it", "they", "these", "this", "its", "their", "which", "whose", "that", "where", "some", "most", "with", "them"}
    | {"largest", "larger", "biggest", "bigger", "smallest", "smaller", "size", "diameter", "thickness", "lesion"}
    | {"lesions", "edge", "edges", "border", "borders", "boundary", "boundaries", "margin", "margins", "density"}
    | {"contour", "contours", "involving", "especially", "mainly", "predominantly"}
)
_ONWARD_REACH = 3
# What is involved belongs to the finding: "especially both lower lobes are affected".
_INVOLVED = frozenset({"affected", "involved"})
_PLACING = frozenset({"in", "at", "adjacent", "on"})
_ANATOMY = re.compile(
    r"lungs?$|lobes?$|hil[aiu]|mediasti|pleura|thora|hemithora|trachea|bronch|heart|cardi|vessel|vascular|aort|markings?$"
    r"|textures?$|fields?$|diaphragm|chest|esophag|oesophag|bones?$|bony|ribs?$|verteb|liver|hepat|spleen|kidney|renal"
    r"|adrenal|pancrea|gall|bile|thyroid|breasts?$|axill|ventric|cerebr|sulc|cistern|brain|skull|airways?$"
)
# Findings that no lexicon names, and words for what is seen.
_SEEN = re.compile(r"shadows?$|strips?$|foci$|focus$|artifacts?$|calcifi")
_OTHER_ORGAN = re.compile(
    r"liver$|hepatic$|spleen$|splenic$|kidneys?$|renal$|adrenals?$|pancrea|gallbladder$|biliary$|bladder$|prostate$|uter"
    r"|ovar|thyroid|breasts?$|mammary$|brain|cerebr|cerebell|ganglia$|periventricular$|paraventricular$|sulc[iu]|skull$"
    r"|mandib|maxill|orbit"
)
_CHEST = re.compile(r"lungs?$|pulmonary$|pleura|subpleural|bronch|fissure|hemithora|lingul|segments?$|parenchyma")


def statements(tokens: Sequence[str], named: Collection[int]) -> list[int]:
    """For each token the number of the statement that it stands in.

    A comma ends a statement where both what lies before and what follows have a verb, and the next one's subject is
    something to see or an organ: "nodules are seen in the left lung, both hila are not large" are two.

    Args:
        tokens: Tokens of one sentence.
        named: Tokens that name findings.

    Example:
        >>> tokens = "nodule is seen on the left , both hila are normal".split()
        >>> statements(tokens, {0})
        [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    """
    numbers = [0] * len(tokens)
    if "," not in tokens or _VERBS.isdisjoint(tokens):
        return numbers
    number, is_said, start = 0, False, 0
    for end in [*(i for i, token in enumerate(tokens) if token == ","), len(tokens)]:
        clause = tokens[start:end]
        verb = _verb(clause)
        if is_said and verb > 0 and _has_subject(clause[:verb], start, named) and _INVOLVED.isdisjoint(clause):
            number, is_said = number + 1, False
        is_said = is_said or verb >= 0
        numbers[start : end + 1] = [number] * (min(end + 1, len(tokens)) - start)
        start = end + 1
    return numbers


def _verb(clause: Sequence[str]) -> int:
    """Index of the first verb that says something, or -1: "the left lung is in the upper lobe" is a mere place."""
    for i, token in enumerate(clause):
        if token in _VERBS and not (clause[i + 1 : i + 2] and clause[i + 1] in _PLACING and _is_organ(clause[:i])):
            return i
    return -1


def _is_organ(subject: Sequence[str]) -> bool:
    return any(_ANATOMY.match(token) for token in subject)


def _has_subject(subject: Sequence[str], start: int, named: Collection[int]) -> bool:
    """Whether words before a verb name something to see or an organ, and do not go on about what was named before."""
    if any(start + i in named for i in range(len(subject))):
        return True
    is_own = _is_organ(subject) or any(_SEEN.match(token) for token in subject)
    return is_own and _ONWARD.isdisjoint(subject[:_ONWARD_REACH])


def is_elsewhere(tokens: Sequence[str]) -> bool:
    """Whether a statement is about an organ outside the lungs alone.

    Example:
        >>> is_elsewhere("low density in the basal ganglia".split()), is_elsewhere("low density at the base".split())
        (True, False)
    """
    return any(_OTHER_ORGAN.match(token) for token in tokens) and not any(_CHEST.match(token) for token in tokens)
