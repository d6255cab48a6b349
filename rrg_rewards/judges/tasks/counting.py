"""Task of counting the errors of a candidate report by category and significance: prompt and checks of answers."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from typing_extensions import TypedDict

from rrg_rewards.judges.base import AnswerError, Message, ReportPair
from rrg_rewards.judges.tasks.base import PromptTask, fenced_text, without_thought
from rrg_rewards.judges.tasks.grounding import ReportWords, plain_words, prose, report_words
from rrg_rewards.judges.tasks.prompt_files import PromptFileTask
from rrg_rewards.schemas.errors import ERROR_CATEGORIES, REXVAL_ERRORS, ErrorCategory

# The quotes that an error of a category requires.
_QUOTES: dict[ErrorCategory, tuple[str, ...]] = {
    "false_finding": ("candidate_quote",),
    "omitted_finding": ("reference_quote",),
    "wrong_location": ("reference_quote", "candidate_quote"),
    "wrong_severity": ("reference_quote", "candidate_quote"),
    "false_comparison": ("candidate_quote",),
    "omitted_comparison": ("reference_quote",),
}
_SIDES = ("reference_quote", "candidate_quote")
# Parts of the printed answer, and whether their errors are significant.
_PARTS = {"clinically significant errors": True, "clinically insignificant errors": False}
_MATCHED = "matched findings"
_HEADING = re.compile(rf"\[({'|'.join((*_PARTS, _MATCHED))})\]", re.IGNORECASE)
_PROBE = 'Report. <a> "b"\n'


@dataclass(frozen=True)
class CountedError:
    """An error of a candidate report.

    Args:
        category: One of ``rrg_rewards.schemas.ERROR_CATEGORIES``.
        significant: Whether the error is clinically significant.
        reference_quote: Words of the reference report; ``None`` if it does not mention the matter.
        candidate_quote: Words of the candidate report; ``None`` if it does not mention the matter.
        explanation: Description of the error.
    """

    category: ErrorCategory
    significant: bool
    reference_quote: str | None
    candidate_quote: str | None
    explanation: str


@dataclass(frozen=True)
class CountedErrors:
    """All errors of a candidate report.

    Args:
        errors: The errors, in the order of the answer.
        matched: Number of findings that both reports state without an error.
    """

    errors: tuple[CountedError, ...]
    matched: int

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of errors by category, in the order of ``rrg_rewards.schemas.ERROR_CATEGORIES``."""
        return _count(self.errors)

    @property
    def significant(self) -> tuple[int, ...]:
        """Number of clinically significant errors by category."""
        return _count(error for error in self.errors if error.significant)


class MatchedQuotes(TypedDict):
    """The quotes of a finding that both reports state without an error."""

    reference_quote: str
    candidate_quote: str


class QuotedError(TypedDict):
    """An error of the candidate, with quotes; ``None`` if a report does not mention the matter."""

    explanation: str
    category: ErrorCategory
    significant: bool
    reference_quote: str | None
    candidate_quote: str | None


class CountsForm(TypedDict):
    """Answer of :class:`CountingTask`."""

    matched_findings: list[MatchedQuotes]
    errors: list[QuotedError]


def _count(errors: Iterable[CountedError]) -> tuple[int, ...]:
    counts: Counter[str] = Counter(error.category for error in errors)
    return tuple(counts[category] for category in ERROR_CATEGORIES)


class CountingTask(PromptTask[ReportPair, CountedErrors]):
    """Count the errors of a candidate report by the six categories of ReXVal and CREPE, significant or not.

    The prompt is ``judges/tasks/counting_prompt.md``. The reports are inserted as JSON strings between tags
    (:func:`rrg_rewards.judges.tasks.base.fenced_text`). The answer lists errors, each with its category, its
    significance and quotes, and the findings without an error. The counts are the lengths of the lists.

    An answer is valid if it is a JSON object of the schema (``malformed`` otherwise), and (``inconsistent`` otherwise)

    - each error has the quotes of its category: of the candidate for a false finding or comparison, of the reference
      for an omitted one, of both, with different words, for a wrong location or severity;
    - each quote occurs in its report literally (white space and case aside), or one sentence contains most of its
      words (:data:`rrg_rewards.judges.tasks.grounding.GROUNDING`) and the report its numbers;
    - no error is listed twice, and not more errors than both reports have words;
    - the quotes mention at least half of what the rules find present in each report
      (:data:`rrg_rewards.judges.tasks.grounding.COVERAGE`);
    - a copy of the reference (case and punctuation aside) has no errors.

    Whether categories and significances are right is not checked.

    Source: Cho et al., "CREPE", Section 3.3 and Appendix A.2.2. The paper's prompt, adapted from GREEN, has the same
    categories and also lists errors and matched findings. It requires no quotes, and its answer is not JSON.

    Example:
        >>> import json
        >>> pair = ReportPair("Small left effusion.", "Small right effusion.")
        >>> error = {"explanation": "Wrong side.", "category": "wrong_location", "significant": True}
        >>> quotes = {"reference_quote": "left effusion", "candidate_quote": "right effusion"}
        >>> counted = CountingTask().parse(pair, json.dumps({"matched_findings": [], "errors": [{**error, **quotes}]}))
        >>> counted.counts, counted.significant
        ((0, 0, 1, 0, 0, 0), (0, 0, 1, 0, 0, 0))
    """

    name = "error_counts"
    template = "counting"
    form = CountsForm

    def __repr__(self) -> str:
        return "CountingTask()"

    def _probes(self) -> Sequence[ReportPair]:
        return (ReportPair(_PROBE, "Candidate."), ReportPair("Reference.", _PROBE))

    def messages(self, item: ReportPair) -> list[Message]:
        """Build the conversation: categories and instructions, then the reports as data."""
        described = zip(ERROR_CATEGORIES, REXVAL_ERRORS.values(), strict=True)
        return self._fill(
            categories="\n".join(f'- "{name}": {meaning}' for name, meaning in described),
            reference=fenced_text(item.reference),
            candidate=fenced_text(item.candidate),
        )

    def shared_part(self, item: ReportPair) -> Hashable:
        """Reference."""
        return item.reference

    def parse(self, item: ReportPair, answer: str) -> CountedErrors:
        """Return the errors that an answer lists."""
        listed: CountsForm = self._read(answer)
        stated, matched = listed["errors"], listed["matched_findings"]
        reports = {"reference_quote": item.reference, "candidate_quote": item.candidate}
        words = {side: report_words(report) for side, report in reports.items()}
        if stated and plain_words(item.reference) == plain_words(item.candidate):
            raise AnswerError("inconsistent", "errors: the candidate is a copy of the reference")
        if len(stated) > sum(map(len, words.values())):
            raise AnswerError("inconsistent", f"errors: {len(stated)} errors are more than the reports have words")
        entries: list[tuple[str, Any, Sequence[str]]]
        entries = [(f"errors[{row}]", error, _QUOTES[error["category"]]) for row, error in enumerate(stated)]
        entries += [(f"matched_findings[{row}]", match, _SIDES) for row, match in enumerate(matched)]
        for where, entry, required in entries:
            _check_quotes(where, entry, required, reports, words)
        _check_different(stated)
        for side, report in words.items():
            if not report.covered_by([entry[side] or "" for _, entry, _ in entries]):
                raise AnswerError("inconsistent", f"the quotes leave out most abnormal findings of the {_report(side)}")
        return CountedErrors(tuple(CountedError(**error) for error in stated), len(matched))


def _report(side: str) -> str:
    return side.removesuffix("_quote")


def _check_quotes(
    where: str, entry: Any, required: Sequence[str], reports: dict[str, str], words: dict[str, ReportWords]
) -> None:
    for side in _SIDES:
        quote = entry[side]
        if quote is None or not quote.strip():
            if side in required:
                raise AnswerError("inconsistent", f"{where} lacks its {side}")
        elif not (_contains(reports[side], quote) or words[side].contains_finding(quote)):
            raise AnswerError("inconsistent", f"{where}: {side} is not in the {_report(side)}")


def _contains(report: str, quote: str) -> bool:
    """Whether a report contains a quote, white space and case aside. Text in braces and fences does not count."""
    plain, words = ("".join(f" {word}" for word in plain_words(text)) + " " for text in (prose(report), quote))
    return bool(words.strip()) and words in plain


def _check_different(errors: Sequence[Any]) -> None:
    quotes = [tuple(tuple(plain_words(error[side] or "")) for side in _SIDES) for error in errors]
    for row, (error, (reference, candidate)) in enumerate(zip(errors, quotes, strict=True)):
        if reference == candidate:
            raise AnswerError("inconsistent", f"errors[{row}]: both quotes of {error['category']} are equal")
    keys = Counter(zip((error["category"] for error in errors), quotes, strict=True))
    if repeated := next((key[0] for key, count in keys.items() if count > 1), None):
        raise AnswerError("inconsistent", f"errors: an error of {repeated} is listed twice")


class CountPromptTask(PromptFileTask[ReportPair, CountedErrors]):
    r"""Count the errors of a candidate report with a prompt of the user, in the answer format that the paper prints.

    The placeholders are ``<reference report>`` and ``<candidate report>``, in the paper ``{reference_report}`` and
    ``{candidate_report}``. An answer has the parts ``[Clinically Significant Errors]``, ``[Clinically Insignificant
    Errors]`` and ``[Matched Findings]``, in the first two a line ``(a) <type>: <number>. <error>; <error>`` for each of
    ``(a)`` to ``(f)``, and in the last a number. The numbers count, whatever is listed. Errors have no quotes, and are
    not compared with the reports.

    Source: Cho et al., "CREPE", Appendix A.2.

    Args:
        prompt: The prompt.

    Raises:
        ValueError: If the prompt contains only one of the placeholders, or an unknown one.

    Example:
        >>> lines = "\n".join(f"({letter}) Type: {letter.count('b')}. Edema" for letter in "abcdef")
        >>> answer = "\n".join(f"[Clinically {kind} Errors]:\n{lines}" for kind in ("Significant", "Insignificant"))
        >>> task = CountPromptTask("Count: {reference_report} {candidate_report}")
        >>> task.parse(ReportPair("Edema.", "Clear."), f"{answer}\n[Matched Findings]:\n0.").counts
        (0, 2, 0, 0, 0, 0)
    """

    name = "error_count_prompt"
    required = ("reference report", "candidate report")

    def values(self, item: ReportPair) -> Mapping[str, str]:
        """Return both reports."""
        return {"reference report": item.reference, "candidate report": item.candidate}

    def parse(self, item: ReportPair, answer: str) -> CountedErrors:
        """Return the errors that an answer counts."""
        _, *parts = _HEADING.split(without_thought(answer))
        titles = [title.lower() for title in parts[::2]]
        if sorted(titles) != sorted((*_PARTS, _MATCHED)):
            raise AnswerError("malformed", f"the answer must have [{'], ['.join((*_PARTS, _MATCHED))}], once each")
        bodies = dict(zip(titles, parts[1::2], strict=True))
        most = len(item.reference.split()) + len(item.candidate.split())
        errors = []
        for (part, significant), (letter, category) in product(_PARTS.items(), zip("abcdef", _QUOTES, strict=True)):
            before = rf"^[^\w\n]*{letter}\)[^:\n]*:[^\w\n]*"
            number, listed = _counted(bodies[part], before, f"({letter}) of [{part}]", most)
            texts = [text.strip() for text in listed.split(";")] + [""] * number
            errors += [CountedError(category, significant, None, None, text) for text in texts[:number]]
        return CountedErrors(tuple(errors), _counted(bodies[_MATCHED], r"\A\W*", f"[{_MATCHED}]", most)[0])


def _counted(text: str, before: str, where: str, most: int) -> tuple[int, str]:
    """Return the number that follows a pattern, and the rest of its line."""
    found = re.search(rf"{before}(?<![-\u2212.])(\d{{1,6}})(?!\w|\.\d|\s*%)\.?(.*)", text, re.IGNORECASE | re.MULTILINE)
    if found is None:
        raise AnswerError("malformed", f"{where} has no number")
    if int(found[1]) > most:
        raise AnswerError("inconsistent", f"{where}: {found[1]} are more than the reports have words")
    return int(found[1]), found[2]
