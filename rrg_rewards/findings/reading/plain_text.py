"""Turn a report as programs export it into plain text, without markup, forms, lists on a line and look-alikes."""

import html
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from rrg_rewards.findings.knowledge.load import cue_words, load_knowledge
from rrg_rewards.findings.reading.coverage import coverage_reader
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.phrases import Memo

Edit = tuple[int, int, str]
"""Offsets of characters, and the text in their place."""


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
    if "l on the " in plain.text or "e on the " in plain.text or " but no" in plain.text:
        gaps = _layout("ellipsis").finditer(plain.text)
        plain = plain.edited([(gap.end(), gap.end(), f" {gap['noun'] or gap['other']}") for gap in gaps])
    if _NO_SEEN.search(plain.text):
        plain = plain.replaced(_NO_SEEN, lambda _: " not ")
    if "/o" in plain.text or "n0" in plain.text or "N0" in plain.text:
        plain = plain.replaced(_MISTYPED, lambda found: "w/o " if found[0] == "w/o" else "no ")
    for edits in _form_edits(plain.text):
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


# A tag, a comment, or a style sheet or the thoughts of a model with their contents. "<5 mm" is none. The prompt may
# have opened the thoughts.
_THOUGHTS = "think(?:ing)?|thoughts?|reasoning"
_TAG = re.compile(
    rf"\A(?:(?!<(?:{_THOUGHTS})>).)*</(?:{_THOUGHTS})>|<!--.*?-->|"
    rf"<(?P<hidden>style|script|{_THOUGHTS})\b.*?</(?P=hidden)\s*>|"
    r"<!?(?P<close>/?)(?P<name>[A-Za-z][\w:-]*)(?:\s[^<>]*)?/?>",
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
# Initials with full stops ("R.U.L."), a side ("R. lower lobe", "R effusion", not "L spine"), the number of something
# ("nodule No. 2"), and a denial with a wrong sign after it. The search for parts of them is many times as fast.
_ABBREVIATED = re.compile(
    r"\b(?P<initials>(?:[A-Z]\.){2,}(?=[ ,;)])|(?:[A-Z]\.){2,}[A-Z]\b)|\b"
    r"(?P<side>[RL])(?:\.(?= ?[a-z])|(?<![,/&+-] .)(?= (?!(?i:spine|and|or)\b)(?:[a-z]{2}|[A-Z]{2,}\b)))|"
    r"(?<=[a-z] )(?P<number>[Nn]o\. ?)(?=\d)|(?<![:\w] )(?<![:\w-])\b(?P<denial>[Nn]o|NO)[.;](?=[A-Za-z])"
)


# A full stop within a word, and after a side.
_DOTTED = re.compile(r"\.(?:[A-Za-z,;)]|(?<=[RL]\.) [a-z])")


def _has_short_form(text: str) -> bool:
    """Whether a text can contain what ``_ABBREVIATED`` matches, which takes long to search for."""
    return "o. " in text or "o;" in text or "R " in text or "L " in text or _DOTTED.search(text) is not None


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


# Forms, and lists on one line.
_TEXT_LINE = re.compile(r"[^\n\r]+")
_LETTER = re.compile("[A-Za-z]")
# A box, checked or not: "[x]", "[Y]", "[ ]", "(x)", "( )".
_BOX = re.compile(r"\[(?:([xXyY*+])|[ nN_-])\]|\((?:([xX])| )\)")
# A label after an answer, before the next boxes: "[x] no Effusion:".
_NEXT_LABEL = re.compile(r"\s+(?=[A-Z][A-Za-z /]*:\s*$)")
# A key of JSON, and the start of its value.
_KEY = re.compile(
    r"([\"'])(?P<key>[A-Za-z][\w /-]*)\1\s*:\s*(?P<value>true|false|null|none|[01](?=\s*[,}\]\n])|\[?[\"'])?",
    re.IGNORECASE,
)
_VALUES = {"true": "yes", "1": "yes", "false": "no", "0": "no", "none": "n/a", "null": "n/a"}
# The value of an argument: "effusion=True".
_ARGUMENT = re.compile(r"=(?<=[\w ]=) ?(true|false|none|null)\b", re.IGNORECASE)
# The answer to a question: "effusion? No".
_QUESTION = re.compile(r"(\?)(?<=[A-Za-z]\?) +(?=(?:yes|no)\s*(?:[.;\n\r]|$))", re.IGNORECASE)
# One letter as an answer: "effusion: N."
_INITIAL = re.compile(r":(?<=[A-Za-z]:) *([YyNn])(?= *(?:[.;,|\n\r]|$))")
# The end of the first marker of lettered items: "(a)", " i)".
_LETTERED = re.compile(r"\)(?<=[\s(][aAi]\))")
# The marker of a numbered item; the first one begins a line or follows punctuation: "1)", "(a)", "#1", "[1]", "1-".
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii")
_NUMBER = re.compile(
    r"(?<!\S)(?:[(\[]?(\d{1,2}|[a-hA-H]|[ivx]{1,4})[)\]]|#(\d{1,2})[:.)]?|(\d)-(?= ?[A-Z]))(?=\s*[A-Za-z])"
)
_SERIES = (*map(str, range(1, 31)), "", *"abcdefgh", "", *"ABCDEFGH", "", *_ROMAN, "")
# The lines of a list after a denial: those with a marker, or short ones without a verb.
_MARK = r"(?:[-*+\u2022\u2013]|[(\[]?\d{1,2}[.)\]]|[(]?[a-h]\)) "
_SHORT = r"(?![^\n]*\b(?:is|are|was|were)\b)[A-Za-z][^\n.:]{0,60}\b(?=\n|\Z)"
_LISTED = re.compile(rf"\s*?(?:(?:\n[ \t]*{_MARK}[^\n]*)+|(?:\n[ \t]*{_SHORT})+)")
_LISTED_MARK = re.compile(rf"[.,;]?\s*\n\s*(?:{_MARK})?")
_LIST_END = re.compile(r"(?<!\d)\. |\n\s*\n|\n(?=\s*[A-Z][A-Za-z ]*:)|\]")
_MOST_LISTED = 1_000
_LIST_MARK = re.compile(rf"(?:\A|(?<=[\s:]))\s*{_MARK}|[;\[\"]")
# The sign of an item: "+ edema, - effusion", "(+) edema, (-) effusion", "+edema -effusion".
_SIGNED_ITEM = re.compile(r"(?:(?:\A|(?<=[,;:]))\s*(?:\([+-]\)|[+-])\s?|(?<=\s)(?:\([+-]\)\s?|[+-]))(?=[A-Za-z])")
_PART_ITEM = re.compile(r"\n[ \t]+[-*\u2022] ")
# Signs between spaces that separate items or cells, and a line of a table without words.
_SIGN = re.compile(r"(?<=\s)(?:[-*|/\u2022\u2013\u2014]|--|->)(?=\s+\S)")
_RULE = re.compile(r"^[ \t]*\|?[ \t]*:?-{2,}:?[ \t]*(?:\|[ \t:-]*)*$", re.MULTILINE)
_SIGN_WORD = re.compile("[A-Za-z0-9]")
# Number of characters before a sign that say what it separates.
_BEFORE = 300
# Maximum number of characters of the name of an item.
_LONGEST_NAME = 60
_DENIAL = re.compile(r"\s*(?:[A-Za-z ]{2,20}: *)?(?:no|without)\b", re.IGNORECASE)


def _form_edits(text: str) -> Iterator[Callable[[str], Iterator[Edit]]]:
    """Yield functions that return the edits of a text, one after the other; most texts need none."""
    has_colon = ":" in text
    if has_colon and ('"' in text or "'" in text):
        yield _keys
    ends = [part[-20:].rstrip("*_\"' ").lower() for part in text.split(":")[:-1]]
    if any(end.endswith(_ends("denied_list")) for end in ends):
        yield _denied_items
    if "+" in text and "-" in text:
        yield _signed_items
    if "\n " in text or "\n\t" in text:
        yield _parts
    if _has_items(text):
        yield _items
    if "[" in text or "( )" in text or "(x)" in text or "(X)" in text:
        yield _boxes
    if has_colon or " - " in text or "=" in text or "? " in text:
        yield _answers
    if any(end.endswith(_ends("detail")) for end in ends):
        yield _details


def _has_items(text: str) -> bool:
    """Whether a text can contain items or cells on one line. One sign is found much faster than one of several."""
    return (
        ("-" in text and (" - " in text or "-- " in text or " -> " in text or "1- " in text))
        or (")" in text and ("1)" in text or text[1:2] == ")" or _LETTERED.search(text) is not None))
        or ("/" in text and " / " in text)
        or ("*" in text and " * " in text)
        or "|" in text
        or "#1" in text
        or "1]" in text
        or (not text.isascii() and ("\u2022" in text or "\u2013" in text or "\u2014" in text))
    )


def _keys(text: str) -> Iterator[Edit]:
    """Read JSON as a form: ``{"effusion": true}`` is "effusion: yes"."""
    for found in _KEY.finditer(text):
        value = _VALUES.get((found["value"] or "").lower(), "")
        yield found.start(), found.start("key"), "\n"
        yield found.end("key"), found.end(), f": {value}"


def _answers(text: str) -> Iterator[Edit]:
    """Write "N", "Y", "=False" and answers to questions in full, and leave out items whose answer says nothing."""
    found = [(*match.span(1), "yes" if match[1] in "Yy" else "no") for match in _INITIAL.finditer(text)]
    found += [(*match.span(), f": {_VALUES[match[1].lower()]}") for match in _ARGUMENT.finditer(text)]
    found += [(*match.span(1), ":") for match in _QUESTION.finditer(text)]
    yield from sorted([*found, *_unanswered(text)])


@cache
def _whole_answer() -> re.Pattern[str]:
    """Match an answer of a form as a whole: "none", "not seen", "mild"."""
    return re.compile(rf"\s*(?:{'|'.join(load_knowledge('forms')['answers'])})\W*", re.IGNORECASE)


def _unanswered(text: str) -> Iterator[Edit]:
    """Leave out the items whose answer says nothing: "Pneumothorax: not assessed"."""
    done = 0
    colon, dash = _nothing()
    answers = [*colon.finditer(text), *(dash.finditer(text) if " -" in text or " \u2013" in text else ())]
    for answer in sorted(answers, key=re.Match.start):
        start = answer.start()
        while start > done and (text[start - 1].isalnum() or text[start - 1] in "_ /()-"):
            start -= 1
        name = _LETTER.search(text, start, answer.start())
        if name and answer.start() - name.start() <= _LONGEST_NAME:
            done = answer.end()
            yield name.start(), done, ""


@cache
def _nothing() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Match an answer that says nothing, with the colon or the dash before it."""
    nothing = "|".join(load_knowledge("forms")["nothing"])
    more = r"(?: (?:on|in|by|due|because|with|at|for|given|from|as|this)\b[^.;|\n\r]*)?"
    end = r" *(?:[.;|(}\n\r]|$|,(?=[^,.;:\n\r]*:))"
    answer = rf" *(?:{nothing}){more}(?={end})"
    return re.compile(f":{answer}", re.IGNORECASE), re.compile(f" [-\u2013]{answer}", re.IGNORECASE)


def _boxes(text: str) -> Iterator[Edit]:
    """Replace boxes by answers, line by line."""
    for line in _TEXT_LINE.finditer(text):
        boxes = list(_BOX.finditer(text, line.start(), line.end()))
        if not boxes:
            continue
        ends = [box.start() for box in boxes[1:]] + [line.end()]
        pieces = [text[box.end() : end] for box, end in zip(boxes, ends, strict=True)]
        label = text[line.start() : boxes[0].start()]
        if not any(map(str.isalpha, label)):
            # A box before each item.
            yield from ((*box.span(), "\n" if box[1] or box[2] else "\n no ") for box in boxes)
        elif _is_choice(label, pieces):
            yield from _choices(line.start(), boxes, pieces, label.rstrip().endswith(":"))
        else:
            # A box after each item.
            colons = [text[: box.start()].rstrip()[-1:] == ":" for box in boxes]
            for box, has_colon in zip(boxes, colons, strict=True):
                yield *box.span(), ("" if has_colon else ": ") + ("yes\n" if box[1] or box[2] else "no\n")


def _is_choice(label: str, pieces: Sequence[str]) -> bool:
    """Whether boxes stand before the possible answers of an item: "Effusion: [ ] none [x] small"."""
    options = [_NEXT_LABEL.split(piece)[0] for piece in pieces]
    is_labelled = label.rstrip().endswith(":") and not any(option.rstrip().endswith(":") for option in options)
    return any(map(str.isalnum, options[-1])) and (is_labelled or all(map(_whole_answer().fullmatch, options)))


def _choices(start: int, boxes: Sequence[re.Match[str]], pieces: Sequence[str], has_colon: bool) -> Iterator[Edit]:
    """Leave out the answers that are not chosen, and the items without a chosen answer."""
    removed: list[Edit] = []
    is_answered = False
    for box, piece in zip(boxes, pieces, strict=True):
        is_chosen = bool(box[1] or box[2])
        following = _NEXT_LABEL.search(piece)
        end = box.end() + (following.start() if following else len(piece))
        if is_chosen:
            removed.append((*box.span(), ", " if is_answered else "" if has_colon else ": "))
        else:
            removed.append((box.start(), end, ""))
        is_answered |= is_chosen
        if following or box is boxes[-1]:
            yield from removed if is_answered else [(start, end, "")]
            if following:
                start = box.end() + following.end()
                yield end, start, "\n"
            removed, is_answered, has_colon = [], False, True


def _items(text: str) -> Iterator[Edit]:
    """Begin a line with each item of a list on one line; the answers of a table follow a colon."""
    rules = [(*rule.span(), "") for rule in _RULE.finditer(text)] if "--" in text else []
    numbers = [(start - 1, start, "\n\n") for start in _numbers(text)]
    signs = (edit for line in _TEXT_LINE.finditer(text) for edit in _signs(text, *line.span()))
    done = 0
    for start, end, new in sorted([*rules, *numbers, *signs]):
        if start >= done:
            yield start, end, new
            done = end


@cache
def _ends(layout: str) -> tuple[str, ...]:
    """Return the last words before the colons of a layout, which are found faster than the layout."""
    return tuple(load_knowledge("forms")["ends"][layout])


@cache
def _layout(name: str) -> re.Pattern[str]:
    """Return the expression of a layout."""
    return re.compile(load_knowledge("forms")["layouts"][name], re.IGNORECASE | re.MULTILINE | re.VERBOSE)


def _denied_items(text: str) -> Iterator[Edit]:
    """Join the items of lists to the denials before them: "no evidence of: 1) nodule 2) mass", "absent: nodule"."""
    done = 0
    for denial in _layout("denied_list").finditer(text):
        start = denial.end()
        if denial.start() < done:
            continue
        yield denial.start(denial.lastgroup or 0), start, "no " if denial["head"] else ""
        listed = _LISTED.match(text, start, start + _MOST_LISTED)
        end = listed or _LIST_END.search(text, start, start + _MOST_LISTED)
        done = listed.end() if listed else end.start() if end else start + _MOST_LISTED
        for mark in (_LISTED_MARK if listed else _LIST_MARK).finditer(text[start:done]):
            yield start + mark.start(), start + mark.end(), ", " if mark.start() and mark[0] not in '["' else " "
        if listed:
            yield done, done, "\n"


def _signed_items(text: str) -> Iterator[Edit]:
    """Begin a line with each item of a line of items with a sign, and deny those with a minus sign."""
    for line in _TEXT_LINE.finditer(text):
        signs = list(_SIGNED_ITEM.finditer(line[0]))
        is_first = bool(signs) and not _LETTER.search(line[0], 0, signs[0].end())
        if is_first and {"+", "-"} <= set("".join([sign[0] for sign in signs])):
            for sign in signs:
                start, end = sign.span()
                yield line.start() + start, line.start() + end, "\n\nno " if "-" in sign[0] else "\n\n"


def _details(text: str) -> Iterator[Edit]:
    """Join details to the items before them: "nodule", and on the next line "location: right upper lobe"."""
    for found in _layout("detail").finditer(text):
        before = text[found.start() - 1 : found.start()]
        if before.isalnum() or before in (":", ")"):
            yield *found.span(), " " if before == ":" else ", "


def _parts(text: str) -> Iterator[Edit]:
    """Repeat the name of a part of the lungs before each of the items below it."""
    for found in _layout("part").finditer(text):
        for item in _PART_ITEM.finditer(found["items"]):
            place = found.start("items") + item.end()
            yield place, place, f"{found['part']}: "


def _numbers(text: str) -> Iterator[int]:
    """Yield the offsets of numbered items after the first: those that count on from a first one."""
    following = ""
    has_marks = ")" in text or "]" in text or "#" in text or "1-" in text
    for found in _NUMBER.finditer(text) if has_marks else ():
        mark = found[1] or found[2] or found[3]
        before = text[: found.start()].rstrip(" \t")[-1:]
        is_first = mark in ("1", "a", "A", "i") and (not before or before in "\n\r.:;")
        if is_first or mark == following:
            if not is_first:
                yield found.start()
            following = _SERIES[_SERIES.index(mark) + 1]


def _signs(text: str, start: int, end: int) -> Iterator[Edit]:
    """Yield edits of the signs between the items or cells of a line."""
    signs = list(_SIGN.finditer(text, start, end))
    is_row = text[start:end].lstrip().startswith("|")
    begins_with_sign = re.match(r"\s*[-*|/\u2022\u2013\u2014]\s", text[start:end]) is not None
    is_named = False
    marks: set[str] = set()
    for last, sign, following in zip([None, *signs], signs, [*signs[1:], None], strict=False):
        begin, stop = last.end() if last else start, following.start() if following else end
        is_named |= _SIGN_WORD.search(text, begin, sign.start()) is not None
        if not is_named:
            continue
        before, after = text[max(start, sign.start() - _BEFORE) : sign.start()], text[sign.end() : stop]
        if is_row and sign[0] == "|" and not _DENIAL.match(before.lstrip(" |")):
            # The cells after the name of a row say what it is.
            yield *sign.span(), "," if "|" in before.strip(" |") else ":"
            continue
        # Whether the sentence has another such sign
        is_next = following is not None and following[0] == sign[0] and ". " not in after
        is_last = last is not None and last[0] == sign[0] and ". " not in text[last.end() : sign.start()]
        sentence = before.rpartition(". ")[2]
        is_list = begins_with_sign or is_next or is_last
        joint = sign[0]
        if sentence.strip() and after.strip():
            joint = _joint(joint, sentence, after, is_list, joint in marks)
        if joint != sign[0]:
            yield *sign.span(), joint
        if joint == "\n\n":
            start, is_named = sign.end(), False
            marks.add(sign[0])


# An item that begins with a size: "5 mm nodule".
_MEASURED = re.compile(r"\s*[\d.,x ]+[mc]m\b(?=\s+[A-Za-z])")


def _joint(sign: str, before: str, after: str, is_list: bool, is_marked: bool) -> str:
    """Return what separates two items: a line end, a colon or comma before an answer, or the sign.

    Args:
        sign: The sign.
        before: The words before it.
        after: Those after it.
        is_list: Whether the sentence has another such sign.
        is_marked: Whether such a sign separated the items before.
    """
    if sign in ("|", "-", "\u2013", "\u2014") and _whole_answer().fullmatch(after):
        return "," if ":" in before else ":"
    if before.rstrip()[-1].isdigit() and after.lstrip()[0].isdigit():
        return sign
    first = after.split()[0]
    is_start = (
        first.lower() in ("no", "without")
        or (first[0].isupper() and not before.strip().isupper())
        or (first[0].isdigit() and _MEASURED.match(after) is not None)
    )
    is_item = is_start and (is_list or _DENIAL.match(before) is not None)
    is_mark = sign in ("|", "*", "\u2022") or (sign in ("--", "->") and (is_marked or _DENIAL.match(before)))
    return "\n\n" if is_mark or is_item else sign
