"""Split a report into sentences with their offsets, without its layout and its sections without findings."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from rrg_rewards.findings.knowledge.load import cue_words, load_knowledge
from rrg_rewards.findings.reading.coverage import precedes_noun
from rrg_rewards.findings.reading.near_words import is_near
from rrg_rewards.findings.reading.tokens import UNIT_MARK, normalise, pad, tokenise

UNIT_SEPARATOR = ". "
"""Text between two units. A unit is one or several whole sentences; the engine remembers the results of each unit."""

# A full stop before a digit is a decimal point. Quotes and bullets separate the lines of an impression.
_STOP = re.compile(r"\.(?!\d)")
# The search for a single character is several times as fast as that for a boundary.
_MARK = re.compile(r'[\n\r;!"“”•\u3002\uff1b\uff01.]')
_BOUNDARY = re.compile(r'[\n\r;!"“”•\u3002\uff1b\uff01]+|\.(?!\d)')
# A full stop that can end an abbreviation, because no capital letter follows or a name does, and the word before it.
_INNER_STOP = re.compile(r"\.(?= *(?!no\b|there\b)[\da-z(~<,]|(?<=\b(?:Dr|DR|Mr|Ms|St|ST)\.) )")
_LAST_WORD = re.compile(r"[A-Za-z]+\Z")
# A semicolon between the items of a list that are a size and a place: "nodules: 4 mm, left apex; 3 mm, right apex".
_SIZED_ITEM = re.compile(r";(?= ?\d+(?:[.,]\d+)? ?[mc]m *(?:[,(]|in\b|at\b))", re.IGNORECASE)
# Maximum length of an abbreviation in characters.
_ABBREVIATION = 8
# Maximum length of a sentence in characters; longer text without a boundary is cut.
_MAX_SENTENCE = 2000


def report_units(report: str) -> list[str]:
    """Return the units of a report without sections such as indication and technique.

    Example:
        >>> report_units("No effusion. Small hernia; clear lungs.")
        ['No effusion', 'Small hernia; clear lungs.']
        >>> report_units("Nodule, approx. 4 mm")
        ['Nodule, approx  4 mm']
    """
    return _INNER_STOP.sub(_after_abbreviation, _SIZED_ITEM.sub(",", unwrap(_blank_requests(report)))).split(
        UNIT_SEPARATOR
    )


def _after_abbreviation(stop: re.Match[str]) -> str:
    """Return a space for the full stop after an abbreviation such as "approx.", else the full stop."""
    word = _LAST_WORD.search(stop.string, max(0, stop.start() - _ABBREVIATION), stop.start())
    short = word[0].lower() if word else ""
    is_abbreviation = short in cue_words("abbreviations", "stopped") or short in load_knowledge("spellings")["short"]
    return " " if is_abbreviation else "."


def split_unit(unit: str) -> list[tuple[int, str]]:
    """Return the sentences of a unit, each with its offset in the unit.

    Example:
        >>> split_unit('Size 2.5 mm." Effusion')
        [(0, 'Size 2.5 mm'), (13, ' Effusion')]
    """
    if len(unit) <= _MAX_SENTENCE and not (_MARK.search(unit) and _BOUNDARY.search(unit)):
        return [(0, unit)] if unit else []
    sentences, start = [], 0
    for boundary in _BOUNDARY.finditer(unit):
        sentences += _bounded(start, unit[start : boundary.start()])
        start = boundary.end()
    return sentences + _bounded(start, unit[start:])


def _bounded(offset: int, sentence: str) -> list[tuple[int, str]]:
    pieces = []
    while len(sentence) > _MAX_SENTENCE:
        cut = sentence.rfind(" ", 1, _MAX_SENTENCE)
        cut = cut if cut > 0 else _MAX_SENTENCE
        pieces.append((offset, sentence[:cut]))
        offset, sentence = offset + cut, sentence[cut:]
    if sentence:
        pieces.append((offset, sentence))
    return pieces


def tokenise_units(units: Sequence[str]) -> Iterator[list[list[str]]]:
    """Yield, for each unit, the tokens of its sentences.

    The result is the same as that of :func:`split_unit` and
    :func:`~rrg_rewards.findings.reading.tokens.tokenise`, but the string operations run once for all units.

    Example:
        >>> list(tokenise_units(["No effusion; hernia", "Clear."]))
        [[['no', 'effusion'], ['hernia']], [['clear']]]
    """
    # A very long unit must be cut, and is therefore tokenised separately. A character outside ASCII slows down the
    # string operations on all units that are joined with it.
    kinds = [unit.isascii() if len(unit) <= _MAX_SENTENCE and UNIT_MARK not in unit else None for unit in units]
    texts = {
        kind: _normalised([unit for unit, own in zip(units, kinds, strict=True) if own is kind])
        for kind in (True, False)
    }
    for unit, kind in zip(units, kinds, strict=True):
        if kind is None:
            yield [tokenise(sentence) for _, sentence in split_unit(unit)]
        else:
            text = next(texts[kind])
            lines = text.split("\n") if "\n" in text else (text,)
            yield [tokens for line in lines if (tokens := line.split())]


def _normalised(units: Sequence[str]) -> Iterator[str]:
    """Return the normalised text of each unit, with a line for each of its sentences."""
    return iter(pad(_STOP.sub("\n", normalise(UNIT_MARK.join(units)))).split(UNIT_MARK))


# A pattern that begins with a character set is searched several times as fast as one that begins with a lookbehind.
_HEADING = re.compile(r"[\n.][ \t*#>-]*(?P<name>[A-Za-z][A-Za-z /&,+().-]{1,40}?)[ \t*]*(?P<mark>:| -(?= ))")
# Start of the next section: any heading at the start of a line or list item, or one of the listed headings anywhere.
_NEXT = re.compile(
    r"\n[ \t*#\u2022\u2023\u2013\u2014>+\d.)-]*[A-Za-z][A-Za-z /&]{2,40}:|"
    r"(?<=[\n. ])(?:findings?|impressions?|conclusions?|results?)[ \t*]*(?::| -(?= ))",
    re.IGNORECASE,
)
# If no heading follows, sections on earlier examinations, the name and the technique end with their first sentence, and
# other sections with their line. If the report has no other line, they end with their first sentence and questions.
_BRIEF = re.compile(r"comparison|exam|study|technique|protocol|procedure", re.IGNORECASE)
_SENTENCE_END, _LINE_END = re.compile(r"\.\s|\n(?=\s*[A-Z])"), re.compile(r"\n(?=\s*[A-Z])")
# The end of the first sentence that no question follows.
_ASKED = re.compile(r"(?<!\bdr)(?<!\b\d)[.?]\s(?![^.?]*\?(?:\s|\Z))", re.IGNORECASE)
# Starts of a line that begin a list item: bullets, "1.", "2)", "(3)", "a)".
_ITEM = re.compile(r"[*#|+>\-\u2022-\u2024\u2013\u2014]|\(?\d{1,2}[.)](?!\d)|[A-Za-z][.)]\s")
# Starts of a line that begin a statement even in lower case: "no ...", "there is ...", "heart size: ...".
_STATEMENT = re.compile(r"no\b|there (?:is|are|was|were)\b|[a-z]+(?: [a-z]+){0,2} ?:", re.IGNORECASE)
# Ends of a line that cannot end a sentence.
_OPEN_END = re.compile(
    r"(?:^|\s)(?:an?|the|this|these|its?|of|in|on|at|to|for|by|from|with|without|within|into|than|as|between|and|or|nor"
    r"|but|no|not|any|is|are|was|were|be|been|has|have|had|that|which|there|may"
    r"|might|could|cannot|exclude|excluded|rule out|shows?"
    r"|suggest|suggests|suggesting|represent|represents|representing|possibly|probably)$|(?:[,(/]|\w-)$",
    re.IGNORECASE,
)
# Starts of a line that go on: "or pneumothorax".
_JOINING = re.compile(r"(?:or|nor|and|of|than)\b", re.IGNORECASE)
# The answer of an item: "effusion: no".
_ANSWER = re.compile(r"([A-Za-z][A-Za-z /&]*):\s+(?:no|not|any|without)$", re.IGNORECASE)
# Number of characters to search at the end of a line; more than the longest of these ends.
_END_SIZE = 40
# Number of characters of a line at which programs wrap.
_FULL_LINE = 55
# A size at the end of a line, and the words of a line after its last punctuation.
_SIZE = re.compile(r"[\d.,x ]+(?:[mc]m)?\Z")
_LAST_WORDS = re.compile(r"[A-Za-z\d .-]*\Z")
_PROSE = re.compile(r"\.(?:\s|\Z)")


def unwrap(report: str) -> str:
    r"""Replace line ends within sentences by spaces; the length does not change.

    A line end remains between paragraphs and list items, after a full stop or colon, and before a capital letter unless
    the words before it are clearly unfinished. Words in capitals on both sides are wrapped prose if the text contains
    full stops.

    Example:
        >>> unwrap("No pleural\neffusion.\nCardiomegaly\nNo nodule")
        'No pleural effusion. Cardiomegaly\nNo nodule'
        >>> unwrap("Impression: NO\nNODULE. Tiny\nEffusion.")
        'Impression: NO NODULE. Tiny Effusion.'
    """
    if "\n" not in report and "\r" not in report:
        return report
    lines = report.replace("\r\n", " \n").replace("\r", "\n").split("\n")
    bare = [line.strip() for line in lines]
    is_prose = _PROSE.search(report) is not None
    # Without full stops and capitals, the lines are statements.
    is_plain = not is_prose and not any(line[:1].isupper() for line in bare)
    parts = [lines[0]]
    for line, (before, after) in zip(lines[1:], pairwise(bare), strict=True):
        parts += ["\n" if _is_break(before, after, is_prose, is_plain) else " ", line]
    return "".join(parts)


def _is_break(before: str, after: str, is_prose: bool, is_plain: bool) -> bool:
    """Whether the end of the line ``before`` also ends a sentence."""
    if not before or not after:
        return True
    if before[-1] in ".:;!":
        # A full stop ends the sentence anyway, and ". " must remain because it separates units.
        return before[-1] != "."
    if _ITEM.match(after):
        return True
    end = before[-_END_SIZE:]
    if _OPEN_END.search(end):
        label = _ANSWER.search(end)
        return label is not None and not _is_result(label[1])
    if _JOINING.match(after):
        return False
    if is_plain and len(before) < _FULL_LINE:
        return bool(_STATEMENT.match(after)) or not _is_unfinished(before)
    last = _SIZE.sub("", end).split() or [""]
    if not after[0].isupper() or (is_prose and _is_capital(last[-1]) and _is_capital(after.split()[0])):
        return bool(_STATEMENT.match(after))
    return not is_prose or not _is_unfinished(before)


def _is_capital(word: str) -> bool:
    """Whether a word is written in capitals, and is more than an initial."""
    return word.isupper() and sum(map(str.isalpha, word)) > 1


def _is_unfinished(line: str) -> bool:
    """Whether the last words of a line only describe what the next line must name: "there is no small or"."""
    words = next(_LAST_WORDS.finditer(line))[0].rpartition(". ")[2].lower().removeprefix("there is").split()
    return bool(words) and all(word[0].isdigit() or word in ("mm", "cm", "x") or precedes_noun(word) for word in words)


def _blank_requests(report: str) -> str:
    r"""Replace sections such as indication and technique by spaces; the length does not change.

    A section begins with its heading at the start of a line or sentence and ends before the next heading.

    Example:
        >>> _blank_requests("INDICATION: Pneumonia?\nFINDINGS: Clear lungs.")
        '                      \nFINDINGS: Clear lungs.'
    """
    if ":" not in report and " - " not in report:
        return report
    kept, begin = [], 0
    exhausted: set[re.Pattern[str]] = set()
    # With a line end before the report, a heading starts in the report where its match starts in the longer text.
    for heading in _HEADING.finditer("\n" + report):
        start = heading.start()
        if start < begin or not _is_request(heading["name"]):
            continue
        close = _SENTENCE_END if _BRIEF.search(heading[0]) else _LINE_END
        begins = heading.end() - 1
        # A report on one line does not end with its indication.
        end = len(report)
        for pattern in (_NEXT, close, _ASKED):
            # What does not follow here does not follow a later heading.
            following = None if pattern in exhausted else pattern.search(report, begins)
            if following:
                end = following.start()
                break
            exhausted.add(pattern)
        kept += [report[begin:start], " " * (end - start)]
        begin = end
    return "".join([*kept, report[begin:]])


# The parts of a heading, its additions, and its words.
_PARTS = re.compile(r"[/&,+]|\band\b")
_BRACKETS = re.compile(r"\(.*?\)")
_LETTERS = re.compile("[a-z]+")


def _is_result(heading: str) -> bool:
    """Whether a heading begins a section on what the images show."""
    return not cue_words("headings", "results").isdisjoint(_LETTERS.findall(heading.lower()))


@lru_cache(maxsize=10_000)
def _is_request(heading: str) -> bool:
    """Whether a heading, also a misspelt one, begins a section on the request or the technique of an examination.

    Args:
        heading: Text before the colon.

    Example:
        >>> [_is_request(heading) for heading in ("Clin hx", "HISTORY/INDICATION", "Reason for exam", "Impression")]
        [True, True, True, False]
    """
    parts = [_LETTERS.findall(part) for part in _PARTS.split(_BRACKETS.sub(" ", heading.lower()))]
    return not _is_result(heading) and any(_requests(part) for part in parts)


def _requests(words: list[str]) -> bool:
    """Whether some words are the name of such a section, with words of a kind before it ("brief clinical history")."""

    def is_in(word: str, name: str) -> bool:
        return is_near(word, cue_words("headings", name))

    if not words or words == ["clinical"]:
        # Not among the requests, because "critical" is near.
        return bool(words)
    size = next((i for i, word in enumerate(words[:-1]) if not is_in(word, "kinds")), len(words) - 1)
    name, *more = words[size:]
    if is_in(name, "reasons"):
        return not more or more[0] in ("for", "of")
    return not more and (is_in(name, "requests") or (size > 0 and is_in(name, "requests_of_a_kind")))
