"""Turn a report as programs export it into plain text, without markup, escapes and look-alike characters."""

import html
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from rrg_rewards.findings.knowledge.load import cue_words, load_knowledge
from rrg_rewards.findings.reading.coverage import coverage_reader
from rrg_rewards.findings.reading.forms import Edit, form_edits
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.phrases import Memo


class Extent(NamedTuple):
    """Offsets of the first of some characters, and after the last."""

    start: int
    end: int


class PlainText(NamedTuple):
    """The plain text of a report.

    Attributes:
        text: The text.
        offsets: Offset in the report of each of its characters and of its end; ``None`` if they are the same.
    """

    text: str
    offsets: Sequence[int] | None = None

    def in_report(self, start: int, end: int) -> Extent:
        """Return the offsets in the report of some characters of the text."""
        return Extent(start, end) if self.offsets is None else Extent(self.offsets[start], self.offsets[end - 1] + 1)

    def in_text(self, start: int, end: int) -> Extent:
        """Return the offsets in the text of some characters of the report."""
        if self.offsets is None:
            return Extent(start, end)
        return Extent(bisect_left(self.offsets, start), bisect_left(self.offsets, end))

    def edited(self, edits: Iterable[Edit]) -> "PlainText":
        """Return the text with some edits, in order: offsets of characters, and the text in their place."""
        made = [edit for edit in edits if self.text[edit[0] : edit[1]] != edit[2]]
        if not made:
            return self
        text, parts, done = self.text, [], 0
        for start, end, new in made:
            parts += [text[done:start], new]
            done = end
        plain = "".join([*parts, text[done:]])
        if all(len(new) == end - start for start, end, new in made):
            return PlainText(plain, self.offsets)
        places, done = [], 0
        offsets = range(len(text) + 1) if self.offsets is None else self.offsets
        for start, end, new in made:
            places += [*offsets[done:start], *(offsets[min(start + i, max(start, end - 1))] for i in range(len(new)))]
            done = end
        return PlainText(plain, [*places, *offsets[done:]])

    def replaced(self, pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str]) -> "PlainText":
        """Return the text in which each match of a pattern is replaced."""
        return self.edited((*found.span(), replacement(found)) for found in pattern.finditer(self.text))


@lru_cache(maxsize=1024)
def plain_text(report: str) -> PlainText:
    r"""Return the plain text of a report.

    HTML tags and entities, escapes such as a literal ``\n``, ligatures, full-width letters, invisible characters and
    words that a line end divides become ordinary characters. The answers of forms (boxes, "N.", "n/a", ``true``) become
    words, and items on one line get lines of their own.

    Args:
        report: Report text.

    Example:
        >>> plain_text("No&nbsp;e\ufb00usion.<br>Nod-\nule").text
        'No effusion.\nNodule'
    """
    plain = PlainText(report)
    if "\\" in report:
        plain = plain.replaced(_ESCAPE, _escaped)
    if "&" in plain.text:
        plain = plain.replaced(_ENTITY, lambda found: html.unescape(f"&{found[1]};"))
    if not plain.text.isascii():
        if _EMPTY.search(plain.text):
            plain = plain.replaced(_LINE, _with_boxes)
        plain = plain.replaced(_NOT_ASCII, lambda found: "".join(map(_CHARACTERS.__getitem__, found[0])))
        if _OTHER_LETTER.search(plain.text):
            plain = plain.replaced(_WORD, _latin)
    if "<" in plain.text and _TAG.search(plain.text):
        plain = _without_tags(plain)
    if "-\n" in plain.text or "-\r" in plain.text:
        plain = plain.replaced(_DIVIDED, _undivided)
    if '" ' in plain.text:
        # Other quotation marks separate statements.
        plain = plain.replaced(_QUOTED, lambda found: f" {found[1]} ")
    if _has_short_form(plain.text):
        plain = plain.replaced(_ABBREVIATED, _unabbreviated)
    if _NO_SEEN.search(plain.text):
        plain = plain.replaced(_NO_SEEN, lambda _: " not ")
    if "/o" in plain.text or "n0" in plain.text or "N0" in plain.text:
        plain = plain.replaced(_MISTYPED, lambda found: "w/o " if found[0] == "w/o" else "no ")
    for edits in form_edits(plain.text):
        plain = plain.edited(edits(plain.text))
    return plain


# Escapes of JSON and Python, also doubled ones, and of Markdown. "\textbf" is a command of LaTeX.
_ESCAPE = re.compile(
    r"\\{1,4}(?:(?P<line>n|\.br\\)|(?P<space>t(?!ext)|r)|u(?P<code>[\da-fA-F]{4})|(?=[-\"'/*#_.()\[\]|!>~`+]))"
)
_ENTITY = re.compile(r"&(?:amp;)*(#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z]{2,8}\d{0,2});")


def _escaped(found: re.Match[str]) -> str:
    if found["code"]:
        return chr(int(found["code"], 16))
    return "\n" if found["line"] else " " if found["space"] else ""


# Filled and empty circles on one line are boxes, and bullets otherwise.
_EMPTY, _FILLED, _LINE = re.compile("[○◯]"), re.compile("[●◉]"), re.compile(r"[^\n]+")
_BOXES = str.maketrans({"○": "☐", "◯": "☐", "●": "☑", "◉": "☑"})
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
# A word, and a Greek or Cyrillic letter.
_WORD = re.compile(r"[^\W\d_]+")
_OTHER_LETTER = re.compile("[\u0370-\u03ff\u0400-\u04ff]")
# Decompositions that leave the meaning: ligatures, full-width and styled letters; not superscripts and fractions.
_SAME = ("<compat>", "<wide>", "<narrow>", "<font>", "<square>", "<noBreak>")
# Punctuation that the sentences and tokens treat by itself, and a sign whose decomposition is "No".
_KEPT = frozenset("\u2026\u2116")
_LINE_ENDS = frozenset("\x85\u2028\u2029")


def _plain_character(character: str) -> str:
    """Return the ordinary characters for a character that is not of ASCII."""
    signs = load_knowledge("signs")
    for name, others in signs["signs"].items():
        if character in others:
            return str(name)
    if character in _LINE_ENDS:
        return "\n"
    category = unicodedata.category(character)
    if category in ("Cf", "Mn"):
        return ""
    if category == "Zs":
        return " "
    decomposed = unicodedata.decomposition(character)
    if decomposed.startswith(_SAME) and character not in _KEPT:
        return "".join(filter(str.isascii, unicodedata.normalize("NFKC", character))) or character
    # An accent makes no other letter in English: "Sj\u00f6gren".
    base = unicodedata.normalize("NFD", character)[0]
    return base if base.isascii() and base.isalpha() else character


_CHARACTERS = Memo(_plain_character)


def _with_boxes(found: re.Match[str]) -> str:
    line = found[0]
    return line.translate(_BOXES) if _EMPTY.search(line) and _FILLED.search(line) else line


def _latin(found: re.Match[str]) -> str:
    """Return a word of which some letters are Latin ones with Latin letters for those that look like them."""
    word = found[0]
    return word.translate(_look_alikes()) if not word.isascii() and any(map(str.isascii, word)) else word


@cache
def _look_alikes() -> dict[int, str]:
    """Return the Latin letters that letters of other alphabets look like."""
    return {ord(other): latin for latin, others in load_knowledge("signs")["look_alikes"].items() for other in others}


# A tag, a comment, or a style sheet with its contents. "<5 mm" is none.
_TAG = re.compile(
    r"<!--.*?-->|<(?P<hidden>style|script)\b.*?</(?P=hidden)\s*>|<!?(?P<close>/?)(?P<name>[A-Za-z][\w:-]*)(?:\s[^<>]*)?/?>",
    re.IGNORECASE | re.DOTALL,
)


def _without_tags(plain: PlainText) -> PlainText:
    """Replace tags by line ends, signs of cells, or nothing. Names in brackets that close nothing remain."""
    closed = {found["name"].lower() for found in _TAG.finditer(plain.text) if found["close"]}
    texts, headings = load_knowledge("signs")["tags"], cue_words("headings", "sections")

    def tag_text(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None:
            return ""
        name = name.lower()
        place = next((text for text, names in texts.items() if name in names.split()), None)
        if place is not None:
            return "" if found["close"] and name in ("li", "td", "th") else str(place)
        if name not in closed:
            return found[0]
        return "\n\n" if found["close"] or name not in headings else f"\n\n{name}: "

    return plain.replaced(_TAG, tag_text)


# A few words in quotation marks within a sentence.
_QUOTED = re.compile(r'"([^".\n]{1,40})"(?= [a-z])')
# Initials with full stops ("R.U.L."), a side ("R. lower lobe"), the number of something ("nodule No. 2"), and a denial
# with a wrong sign after it. The search for the ends of all of them is many times as fast.
_ABBREVIATED = re.compile(
    r"\b(?P<initials>(?:[A-Z]\.){2,}(?=[ ,;)])|(?:[A-Z]\.){2,}[A-Z]\b)|\b(?P<side>[RL])\.(?= ?[a-z])|"
    r"(?<=[a-z] )(?P<number>[Nn]o\. ?)(?=\d)|(?<![:\w] )(?<![:\w-])\b(?P<denial>[Nn]o|NO)[.;](?=[A-Za-z])"
)


# A full stop within a word, and after a side.
_DOTTED = re.compile(r"\.(?:[A-Za-z,;)]|(?<=[RL]\.) [a-z])")


def _has_short_form(text: str) -> bool:
    """Whether a text can contain what ``_ABBREVIATED`` matches, which takes long to search for."""
    return _DOTTED.search(text) is not None or "No. " in text or "no. " in text or "o;" in text


def _unabbreviated(found: re.Match[str]) -> str:
    if found["initials"]:
        return found[0].replace(".", "")
    if found["side"]:
        return "right" if found["side"] == "R" else "left"
    return "#" if found["number"] else f"{found['denial']} "


_MISTYPED = re.compile(r"\b(?:[nN]0 |w/o)(?=[a-z])")
# "No" in place of "not": "was no seen". The fixed text at the start makes the search fast.
_NO_SEEN = re.compile(
    " no (?=(?:observed|detected|seen|identified|found|noted|demonstrated)\\b)"
    "(?:(?<=was no )|(?<=were no )|(?<=is no )|(?<=are no ))"
)
_DIVIDED = re.compile(r"\b([A-Za-z]+)-[ \t]*\r?\n[ \t]*([a-z]+)\b")


def _undivided(found: re.Match[str]) -> str:
    """Join two parts of a word, unless both are words."""
    is_word = coverage_reader(load_lexicon("chest")).knows
    first, second = found[1].lower(), found[2]
    is_one = is_word(first + second) and not (is_word(first) and is_word(second))
    return found[1] + found[2] if is_one else found[0]
