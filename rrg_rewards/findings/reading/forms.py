"""Read the answers of forms as words, and put the items of a line on lines of their own."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from rrg_rewards.findings.knowledge.load import load_knowledge

Edit = tuple[int, int, str]
"""Offsets of characters, and the text in their place."""

_LINE = re.compile(r"[^\n\r]+")
_LETTER = re.compile("[A-Za-z]")
# A box, checked or not: "[x]", "[Y]", "[ ]", "(x)", "( )".
_BOX = re.compile(r"\[(?:([xXyY*+])|[ nN_-])\]|\((?:([xX])| )\)")
# A label after an answer, before the next boxes: "[x] no Effusion:".
_NEXT_LABEL = re.compile(r"\s+(?=[A-Z][A-Za-z /]*:\s*$)")
# A key of JSON, and the start of its value.
_KEY = re.compile(
    r"([\"'])(?P<key>[A-Za-z][\w /-]*)\1\s*:\s*(?P<value>true|false|null|none|[01](?=\s*[,}\]\n])|[\"'])?",
    re.IGNORECASE,
)
_VALUES = {"true": "yes", "1": "yes", "false": "no", "0": "no", "none": "n/a", "null": "n/a"}
# The value of an argument: "effusion=True".
_ARGUMENT = re.compile(r"=(?<=[\w ]=) ?(true|false|none|null)\b", re.IGNORECASE)
# The answer to a question: "effusion? No".
_QUESTION = re.compile(r"(\?)(?<=[A-Za-z]\?) +(?=(?:yes|no)\s*(?:[.;\n\r]|$))", re.IGNORECASE)
# One letter as an answer: "effusion: N."
_INITIAL = re.compile(r":(?<=[A-Za-z]:) *([YyNn])(?= *(?:[.;,|\n\r]|$))")
# The marker of a numbered item; the first one begins a line or follows punctuation: "1)", "(a)", "#1", "[1]", "1-".
_LETTERED = re.compile(r"\)(?<=[\s(][aAi]\))")
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii")
_NUMBER = re.compile(
    r"(?<!\S)(?:[(\[]?(\d{1,2}|[a-hA-H]|[ivx]{1,4})[)\]]|#(\d{1,2})[:.)]?|(\d)-(?= ?[A-Z]))(?=\s*[A-Za-z])"
)
_SERIES = (*map(str, range(1, 31)), "", *"abcdefgh", "", *"ABCDEFGH", "", *_ROMAN, "")
# A denial of a list: "no evidence of:", and the markers of the list.
_DENIED_LIST = re.compile(r"\b(?:no|without|negative)\b[^.:;\n]{0,60}\b(?:of|for|following) *(:)", re.IGNORECASE)
_LIST_END = re.compile(r"(?<!\d)\. |\n\s*\n|\n(?=\s*[A-Z][A-Za-z ]*:)")
_MOST_LISTED = 1_000
_LIST_MARK = re.compile(r"(?:\A|(?<=[\s:]))\s*(?:[-*\u2022\u2013]|[(\[]?\d{1,2}[.)\]]|[(]?[a-h]\)) ")
# Signs between spaces that separate items or cells, and a line of a table without words.
_SIGN = re.compile(r"(?<=\s)(?:[-*|/\u2022\u2013\u2014]|--|->)(?=\s+\S)")
_RULE = re.compile(r"^[ \t]*\|?[ \t]*:?-{2,}:?[ \t]*(?:\|[ \t:-]*)*$", re.MULTILINE)
_WORD = re.compile("[A-Za-z0-9]")
# Number of characters before a sign that say what it separates.
_BEFORE = 300
# Maximum number of characters of the name of an item.
_LONGEST_NAME = 60
_DENIAL = re.compile(r"\s*(?:[A-Za-z ]{2,20}: *)?(?:no|without)\b", re.IGNORECASE)


def form_edits(text: str) -> Iterator[Callable[[str], Iterator[Edit]]]:
    """Yield functions that return the edits of a text, one after the other; most texts need none."""
    has_colon = ":" in text
    if has_colon and ('"' in text or "'" in text):
        yield _keys
    if has_colon and ("of:" in text or "for:" in text or "following:" in text):
        yield _denied_items
    if _has_items(text):
        yield _items
    if "[" in text or "( )" in text or "(x)" in text or "(X)" in text:
        yield _boxes
    if has_colon or " - " in text or "=" in text or "? " in text:
        yield _answers


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
    for line in _LINE.finditer(text):
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
    signs = (edit for line in _LINE.finditer(text) for edit in _signs(text, *line.span()))
    done = 0
    for start, end, new in sorted([*rules, *numbers, *signs]):
        if start >= done:
            yield start, end, new
            done = end


def _denied_items(text: str) -> Iterator[Edit]:
    """Join the items of lists to the denials before them: "no evidence of: 1) nodule 2) mass"."""
    for denial in _DENIED_LIST.finditer(text):
        start = denial.end()
        end = _LIST_END.search(text, start, start + _MOST_LISTED)
        items = text[start : end.start() if end else start + _MOST_LISTED]
        yield *denial.span(1), ""
        for i, mark in enumerate(_LIST_MARK.finditer(items)):
            yield start + mark.start(), start + mark.end(), ", " if i else " "


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
    for last, sign, following in zip([None, *signs], signs, [*signs[1:], None], strict=False):
        begin, stop = last.end() if last else start, following.start() if following else end
        is_named |= _WORD.search(text, begin, sign.start()) is not None
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
        joint = _joint(sign[0], sentence, after, is_list) if sentence.strip() and after.strip() else sign[0]
        if joint != sign[0]:
            yield *sign.span(), joint
        if joint == "\n\n":
            start, is_named = sign.end(), False


def _joint(sign: str, before: str, after: str, is_list: bool) -> str:
    """Return what separates two items: a line end, a colon or comma before an answer, or the sign."""
    if sign in ("|", "-", "\u2013", "\u2014") and _whole_answer().fullmatch(after):
        return "," if ":" in before else ":"
    if before.rstrip()[-1].isdigit() and after.lstrip()[0].isdigit():
        return sign
    first = after.split()[0]
    is_start = first.lower() in ("no", "without") or (first[0].isupper() and not before.strip().isupper())
    is_item = is_start and (is_list or _DENIAL.match(before) is not None)
    is_mark = sign in ("|", "*", "\u2022") or (sign in ("--", "->") and _DENIAL.match(before))
    return "\n\n" if is_mark or is_item else sign
