"""Split a sentence into tokens with their offsets."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import takewhile

from rrg_rewards.findings.knowledge.load import cue_endings, cue_words
from rrg_rewards.findings.reading.phrases import Memo

# A plus sign as a whole answer. Of ASCII, because other characters slow down all operations on a text.
_YES = "\x7f"
_PADDED = f",()?\u00bf:/\u2191\u2193#{_YES}"
_KEPT = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.%<>" + _PADDED)


def _normal_character(code: int) -> int:
    """Keep letters, marks and numbers of other scripts and invisible characters; other characters become spaces."""
    category = unicodedata.category(chr(code))
    return code if category[0] in "LMN" or category == "Cf" else 32


# Maps each character to one character, so that normalised text has the same offsets as the report.
_TABLE = Memo(_normal_character)
_TABLE.update({code: ord(chr(code).lower()) if chr(code) in _KEPT else 32 for code in range(128)})
UNIT_MARK = "\x1e"
"""Separator of units that are tokenised together: a control character without a meaning in reports."""
_TABLE.update(dict.fromkeys(map(ord, '\n\r;!"“”•\u3002\uff1b\uff01'), 10))
# Full-width punctuation, which machine translation leaves in reports, and the multiplication sign between measures.
_TABLE.update({0xFF0C: ord(","), 0xFF1A: ord(":"), 0xFF08: ord("("), 0xFF09: ord(")"), 0xD7: ord("x")})
# A byte order mark may precede the first word.
_TABLE.update({ord(UNIT_MARK): ord(UNIT_MARK), 0xFEFF: 32})
# Signs that have a meaning: "?" before a word, "increased" and "decreased".
_TABLE.update({code: code for code in (0xBF, 0x2191, 0x2193)})


# A number and a sign between it and the next number: "6 * 4mm", "3-6mm", "1,5 cm".
_SIGNED = re.compile(r"\d ?(?:[mMcC][mM] ?)?[*,~\u2013-] ?\.?\d")
_MEASURE_SIGN = re.compile(r"[*,~\u2013-] ?\.?\d")
_TIMES = re.compile(r"(?<=[\dmM])( ?)\*(?= ?\.?\d)")
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(\d{1,2}),(\d{1,2})(?= ?(?:[x*\u00d7-] ?\d|[mc]m\b))", re.IGNORECASE)
_LOWER_END = re.compile(
    r"(?<![\w.])\d+(?:\.\d+)? ?(?:[mc]m)? ?[~\u2013-] ?(?=\d+(?:\.\d+)? ?(?:[mc]m|millimet|centimet))", re.IGNORECASE
)


def _spell_measures(text: str) -> str:
    """Spell the measures in a text uniformly without changing its length.

    A decimal comma becomes a point, an asterisk between dimensions an "x", and the lower end of a range spaces, because
    the size of a lesion is the upper end.
    """
    # Few units have such measures, and the substitutions are slow.
    parts, end = [], 0
    # Signs are rarer than digits, so they are looked for first.
    for found in _MEASURE_SIGN.finditer(text):
        if found.start() < end:
            continue
        start = text.rfind(UNIT_MARK, 0, found.start()) + 1
        parts.append(text[end:start])
        end = text.find(UNIT_MARK, found.end())
        end = len(text) if end < 0 else end
        parts.append(_spelled(text[start:end]) if _SIGNED.search(text, start, end) else text[start:end])
    return "".join([*parts, text[end:]]) if parts else text


def _spelled(text: str) -> str:
    text = _DECIMAL_COMMA.sub(r"\1.\2", _TIMES.sub(r"\1x", text))
    return _LOWER_END.sub(lambda found: " " * len(found[0]), text)


# The answer "-ve", and no word that begins so: "para -vertebral".
_NEGATIVE = re.compile(r"(?<= )-ve\b")
# A whole answer: "effusion: no evidence".
_NO_EVIDENCE = re.compile(rf"(?<=[:-]) [nN]o (?:evidence|signs?|indication)(?= *(?:[,;.()\n{UNIT_MARK}]|$))")
_ANSWERS = (": no ", ": No ", "- no ", "- No ")
# A plus sign as a whole answer: "effusion +ve, stranding +".
_PLUS = re.compile(rf" \+(?:ve\b)?(?= *(?:[,;.)\n{UNIT_MARK}]|$))")
# A fracture: "9th rib #", "# of the hip", but not "nodule #2" or the sign of a heading or an item.
_OTHER_NUMBER_SIGN = re.compile(r"#(?!(?<=[a-z] #)(?![#\d])(?! \d)| of )")
# A question mark before the word that it puts in doubt: "opacity, ?pneumonia".
_ASKED_NEXT = re.compile(r"\?(?<![^\s(\[,/:?]\?)(?=[A-Za-z])")
# "Not" in a contraction becomes a word of its own: "isn't" is "is nt".
_CONTRACTED = re.compile(r"n['\u2019]t\b", re.IGNORECASE)
# A comma between two words, and what ends the words before it.
_SERIES = re.compile(r", (?=(\w+(?: (?:filled|containing)\b)?))")
_LAST_WORD = re.compile(r"\w+\Z")
_END = re.compile(rf"[\n.,:{UNIT_MARK}]")
_STOP = re.compile(rf"[\n.;(){UNIT_MARK}]")
# Number of characters that contain three words.
_THREE_WORDS = 40


def _join_adjectives(text: str) -> str:
    """Replace each comma between two adjectives of one noun phrase by a space."""
    adjectives, descriptive = _adjectives(), cue_words("adjectives", "descriptive")
    endings, joining, done = cue_endings("errors"), cue_words("connectives", "separators", "prepositions"), -1

    def joined(found: re.Match[str]) -> str:
        nonlocal done
        before = text[max(0, found.start() - _THREE_WORDS) : found.start()]
        last = _LAST_WORD.search(before)
        # "Mild, perihilar, dependent edema": the word after a joined comma
        if (
            last is None
            or not (last[0] in adjectives or last[0].endswith(endings))
            or found[1] in joining
            or found[1] == "no"
        ):
            return ", "
        is_next = last.start() + found.start() - len(before) == done
        if not (is_next or last[0] in adjectives):
            return ", "
        is_series = found[1] in descriptive and _ends_in_adjective(_END.split(before)[-1].split())
        words = _STOP.split(before)[-1].replace(",", " ").split()
        if not (is_series or is_next or _is_in_phrase(words, found[1])):
            return ", "
        done = found.end()
        return "  "

    return _SERIES.sub(joined, text) if ", " in text else text


@cache
def _adjectives() -> frozenset[str]:
    return cue_words("adjectives", "descriptive", "stating", "further")


def _is_in_phrase(words: list[str], following: str) -> bool:
    """Whether some words end in an article and adjectives of the noun phrase that goes on: "with a small, left"."""
    adjectives, opening = _adjectives(), cue_words("adjectives", "opening")
    described = list(takewhile(lambda word: word in adjectives or word[0].isdigit(), reversed(words)))
    *_, earlier, before = ("", "", *words[: len(words) - len(described)])
    if before in cue_words("adjectives", "articles"):
        return True
    # "With small, dependent effusions", "small, left effusion", but not "scattered and small, effusion on the left"
    is_opened = before in opening or earlier == "there" or (not before and following in adjectives)
    # "With new, mild edema"
    first = (described[-1], following) if before == "with" else described[-1:]
    return is_opened and earlier not in adjectives and not cue_words("adjectives", "descriptive").isdisjoint(first)


def _ends_in_adjective(words: list[str]) -> bool:
    """Whether the last of some words is an adjective, and not a statement about the words before it."""
    if not words:
        return False
    is_predicate = len(words) > 1 and words[-2] in cue_words("adjectives", "predicating") and words[-3:-2] != ["there"]
    if words[-1] in cue_words("adjectives", "descriptive"):
        return not is_predicate
    return words[-1] in cue_words("adjectives", "stating") and (
        len(words) == 1 or words[-2] in cue_words("adjectives", "opening") or words[-3:-2] == ["there"]
    )


def normalise(sentence: str) -> str:
    """Convert ASCII letters to lower case and other punctuation to spaces; the length does not change.

    Measures are spelled uniformly: "6 * 4mm" is "6 x 4mm", "1,5 cm" is "1.5 cm", and of "3-6 mm" the upper end remains.
    The answers "(-)", "-ve" and ": no evidence" are "(0)", "neg" and ": none", and "?pneumonia" is "\u00bfpneumonia". A
    comma between two adjectives becomes a space: "hazy, patchy".

    Example:
        >>> normalise("Ground-glass [RUL], 6*4mm")
        'ground glass  rul , 6x4mm'
    """
    text = _spell_measures(sentence).replace("(-)", "(0)")
    if " -ve" in text:
        text = _NEGATIVE.sub("neg", text)
    if any(answer in text for answer in _ANSWERS):
        text = _NO_EVIDENCE.sub(lambda found: " none".ljust(len(found[0])), text)
    text = text.replace("(+)", f" {_YES} ")
    if " +" in text:
        text = _PLUS.sub(lambda found: f" {_YES}".ljust(len(found[0])), text)
    if "#" in text:
        text = _OTHER_NUMBER_SIGN.sub(" ", text)
    if "?" in text:
        text = _ASKED_NEXT.sub("\u00bf", text)
    # The search for a character is several times as fast as that for a pattern.
    if "'" in text or "\u2019" in text:
        text = _CONTRACTED.sub(" nt", text)
    return _join_adjectives(text.translate(_TABLE))


def pad(text: str) -> str:
    """Put spaces around punctuation that is a token."""
    for mark in _PADDED:
        if mark in text:
            text = text.replace(mark, f" {mark} ")
    return text


def tokenise(sentence: str) -> list[str]:
    """Return the words, numbers and clause punctuation of a sentence, in lower case.

    Example:
        >>> tokenise("Nodule (metastasis?), 2.5 mm")
        ['nodule', '(', 'metastasis', '?', ')', ',', '2.5', 'mm']
    """
    return pad(normalise(sentence)).split()


def locate(sentence: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Return the start and end in ``sentence`` of each token from :func:`tokenise`.

    Example:
        >>> locate("No effusion", ["no", "effusion"])
        [(0, 2), (3, 11)]
    """
    return locate_in(normalise(sentence), tokens)


def locate_in(text: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Return the start and end of each token in a text from :func:`normalise`."""
    spans, end = [], 0
    find = text.index
    for token in tokens:
        start = find(token, end)
        end = start + len(token)
        spans.append((start, end))
    return spans
