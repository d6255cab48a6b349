"""Image-free policies, and the families of them that an attack searches.

A policy is a constant text, or an edit of honest reports. The texts of a family are complete, or sentences with slots,
which are filled with the findings, labels and sentences of reports, and with sizes and sides.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal

from rrg_rewards.findings.reading.engine import extract_findings
from rrg_rewards.findings.reading.finding import OTHER
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.labelers.rules import RuleLabeler
from rrg_rewards.schemas.labels import is_no_abnormality
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.yaml_files import is_yaml_path, package_yaml

Edit = Literal["", "report", "sentence"]
Combination = Literal["", "evolve", "cross", "append", "prepend", "cross_edits"]

# Numbers of phrases in the texts that list the most common findings.
_COUNTS = (2, 4, 8, 16, 32, 64, 128)
# Of at most this many phrases, all numbers are tried.
_FEW = 40
# Number of sentences of the first listings.
_LISTED = 16
# Number of the most common findings that a search tries in a slot of its best phrases.
_MOST_VALUES = 40

# Number of phrases in each of the lists that a family with many phrases is divided into.
_CHUNK = 16
_SLOT = re.compile(r"\{(\w+)(?::(\w+))?\}")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_CHARACTERS = (*string.punctuation, *string.digits, *string.ascii_letters)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_LABEL_SCHEMAS = ("ct_rate", "chexbert")
_MOST_SENTENCES = 400
_MOST_REPORTS = 200
_MOST_WORDS = 400
# A word must be in this many reports, so that no names of single patients are searched.
_LEAST_REPORTS = 2


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, without surrounding white space.

    Example:
        >>> split_sentences("No effusion. Nodule of 3.5 mm")
        ['No effusion.', 'Nodule of 3.5 mm']
    """
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip(" .!?")]


def _restopped(stop: str) -> Callable[[str], str]:
    """Return a function that separates the sentences of a text with other marks than full stops."""
    return lambda text: stop.join(part.rstrip(".!?") for part in split_sentences(text))


STYLES: Mapping[str, Callable[[str], str]] = {
    "upper": str.upper,
    "lower": str.lower,
    "title": str.title,
    "uncapitalised": lambda text: text[:1].lower() + text[1:],
    "commas": _restopped(", "),
    "semicolons": _restopped("; "),
    "no_stops": _restopped(" "),
    "exclamations": lambda text: _restopped("! ")(text) + "!",
    "lines": lambda text: "\n".join(split_sentences(text)),
    "word_commas": lambda text: ", ".join(text.split()),
    "word_lines": lambda text: "\n".join(text.split()),
    "first_sentence": lambda text: (split_sentences(text) or [""])[0],
    "last_sentence": lambda text: (split_sentences(text) or [""])[-1],
}
"""Forms of a text, as in ``{report:upper}``."""


def fill(template: str, slots: Mapping[str, str]) -> str:
    """Replace the slots of a template, also those with a form of :data:`STYLES`; slots without a value remain.

    Example:
        >>> fill("{name:upper}, {size} mm", {"name": "nodule"})
        'NODULE, {size} mm'
    """

    def value(match: re.Match[str]) -> str:
        name, style = match.groups()
        if name not in slots or (style is not None and style not in STYLES):
            return match.group()
        return slots[name] if style is None else STYLES[style](slots[name])

    return _SLOT.sub(value, template)


def _has_slot(template: str, name: str) -> bool:
    return any(match[1] == name for match in _SLOT.finditer(template))


@dataclass(frozen=True)
class Policy:
    """A policy that sees no image: a text for all patients, or the same edit of each honest report.

    Args:
        sentences: Parts of the text.
        join: Text between two parts.
        end: Text after the last part.
        edit: How the text changes an honest report: ``"report"`` replaces ``{report}`` in the text by the report,
            ``"sentence"`` replaces ``{sentence}`` by each sentence of the report; empty for a constant text.
            ``{report:upper}`` is the report in uppercase; see :data:`STYLES`.

    Example:
        >>> Policy(("Effusion.", "Nodule.")).completion(None)
        'Effusion. Nodule.'
        >>> Policy(("Possibly {sentence}",), edit="sentence").completion("Effusion. Nodule.")
        'Possibly Effusion. Possibly Nodule.'
    """

    sentences: tuple[str, ...]
    join: str = " "
    end: str = ""
    edit: Edit = ""

    @property
    def key(self) -> tuple[str, str]:
        """Text and edit, which are equal for policies that write the same reports."""
        return self.text, self.edit

    @property
    def text(self) -> str:
        """The text, with ``{report}`` or ``{sentence}`` in it if the policy edits reports."""
        return self.join.join(self.sentences) + self.end

    def completion(self, honest: str | None) -> str:
        """Return the policy's report of a patient.

        Args:
            honest: Honest report of the patient; unused by a constant text.

        Raises:
            ValueError: If the policy edits reports and there is no honest report.
        """
        if not self.edit:
            return self.text
        if honest is None:
            raise ValueError("a policy that edits reports needs an honest report")
        if self.edit == "report":
            return fill(self.text, {"report": honest})
        return " ".join(fill(self.text, {"sentence": part}) for part in split_sentences(honest))

    def added_to_report(self, before: bool = False) -> "Policy":
        """Return the policy that puts this constant text after, or before, each honest report."""
        return Policy((self.text, "{report}") if before else ("{report}", self.text), edit="report")


HONEST = Policy(("{report}",), edit="report")
"""The policy that does not change honest reports."""


@dataclass(frozen=True)
class Material:
    """The parts of which texts are made.

    Args:
        findings: Names of the lexicon's concepts, by falling frequency in the reports.
        labels: Names of the labels of CT-RATE and CheXbert, by falling frequency in the reports.
        sentences: Sentences of the reports, by falling frequency.
        reports: Different reports, by falling frequency.
        organs: Parts of the body in the lexicon.
        words: Words of the reports by falling frequency, general words and words of the lexicon, in turn.
    """

    findings: tuple[str, ...]
    labels: tuple[str, ...]
    sentences: tuple[str, ...]
    reports: tuple[str, ...]
    organs: tuple[str, ...]
    words: tuple[str, ...]


def read_material(reports: Sequence[str], lexicon: str | Path = "chest") -> Material:
    """Collect findings, labels and sentences from reports.

    All concepts of the lexicon and all labels are included; those that do not occur in the reports come last.

    Args:
        reports: Reports whose sentences and frequencies are used.
        lexicon: Lexicon of findings, organs and, if it has them, labels: ``chest`` or another lexicon of this package,
            or the path of a ``.yaml`` file in the format of ``docs/labelers.md``.

    Example:
        >>> material = read_material(["Cardiomegaly. No effusion.", "Cardiomegaly.", "Emphysema."])
        >>> material.findings[:2], material.labels[:2], material.sentences[0]
        (('cardiomegaly', 'emphysema'), ('Cardiomegaly', 'Emphysema'), 'Cardiomegaly.')
    """
    counts: Counter[str] = Counter()
    for report in reports:
        found = extract_findings(report, lexicon)
        counts.update({finding.concept for finding in found if finding.presence == "present"})
    read = load_lexicon(lexicon)
    concepts = [concept for concept in read.concepts if concept != OTHER]
    findings = tuple(concept.replace("_", " ") for concept in _by_frequency(concepts, counts))
    return Material(
        findings=findings,
        labels=_labels(reports, [lexicon] if is_yaml_path(lexicon) and read.labels else []),
        sentences=_most_common(
            (sentence for report in reports for sentence in split_sentences(report)), _MOST_SENTENCES
        ),
        reports=_most_common(reports, _MOST_REPORTS),
        organs=tuple(organ.replace("_", " ") for organ in (read.organs or load_lexicon("chest_ct").organs)),
        words=_words(reports, findings),
    )


def _labels(reports: Sequence[str], further: Sequence[str | Path]) -> tuple[str, ...]:
    """Return the names of labels, those of further schemas first if they are as common."""
    counts: Counter[str] = Counter()
    names: list[str] = []
    for schema in (*further, *_LABEL_SCHEMAS):
        labeler = RuleLabeler(schema)
        names += [label for label in labeler.labels if not is_no_abnormality(label)]
        rows = labeler(list(reports)).sum(0).tolist()
        for label, count in zip(labeler.labels, rows, strict=True):
            counts[label] = max(counts[label], count)
    return tuple(_by_frequency(dict.fromkeys(names), counts))


def _words(reports: Sequence[str], findings: Sequence[str]) -> tuple[str, ...]:
    counts = Counter(word for report in reports for word in {word.lower() for word in _WORD.findall(report)})
    common = sorted((word for word in counts if counts[word] >= _LEAST_REPORTS), key=lambda word: (-counts[word], word))
    of_findings = dict.fromkeys(word for finding in findings for word in finding.split())
    turns = zip_longest(common[:_MOST_WORDS], _settings()["words"].split(), of_findings)
    return tuple(dict.fromkeys(word for word in chain.from_iterable(turns) if word is not None))


def _by_frequency(names: Iterable[str], counts: Counter[str]) -> list[str]:
    return sorted(names, key=lambda name: -counts[name])


def _most_common(texts: Iterable[str], limit: int) -> tuple[str, ...]:
    counts = Counter(text.strip() for text in texts if text.strip())
    # Sorted by text where the counts are equal, so that the order of the reports has no effect.
    return tuple(sorted(counts, key=lambda text: (-counts[text], text))[:limit])


@dataclass(frozen=True)
class Phrase:
    """A sentence with values of its slots.

    Args:
        template: The sentence with slots such as ``{name}``.
        slots: Values of the slots by name.
        capital: Whether the first letter is uppercase.

    Example:
        >>> phrase = Phrase("{size} mm {name}.", {"name": "lung nodule", "size": "8"})
        >>> phrase.text, [other.text for other in phrase.neighbours({"size": ["3", "8"]})]
        ('8 mm lung nodule.', ['3 mm lung nodule.'])
    """

    template: str
    slots: Mapping[str, str]
    capital: bool = True

    @property
    def text(self) -> str:
        """The sentence."""
        text = fill(self.template, self.slots)
        return text[:1].upper() + text[1:] if self.capital else text

    def neighbours(self, values: Mapping[str, Sequence[str]]) -> Iterator["Phrase"]:
        """Yield the phrases that differ in the value of one slot that the template contains."""
        for slot, options in values.items():
            if _has_slot(self.template, slot):
                for option in options:
                    if option != self.slots.get(slot):
                        yield replace(self, slots={**self.slots, slot: option})


@dataclass(frozen=True)
class Listing:
    """A phrase that is repeated for each of the first values of ``{other}``, as in "A or B. A or C."; one text.

    Args:
        phrase: The phrase.
        count: Number of values.

    Example:
        >>> phrase = Phrase("{name} or {other}.", {"name": "granuloma", "other": ""})
        >>> Listing(phrase, 2).sentences({"other": ["edema", "pneumonia", "mass"]})
        ('Granuloma or edema.', 'Granuloma or pneumonia.')
    """

    phrase: Phrase
    count: int

    def sentences(self, values: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        """Return the sentences."""
        others = [other for other in values["other"] if other != self.phrase.slots["name"]]
        return tuple(
            replace(self.phrase, slots={**self.phrase.slots, "other": other}).text for other in others[: self.count]
        )

    def neighbours(self, values: Mapping[str, Sequence[str]]) -> Iterator["Listing"]:
        """Yield the listings that differ in their number of values, or in the value of one slot but the name."""
        further = {slot: options for slot, options in values.items() if slot not in ("name", "other")}
        yield from (replace(self, count=count) for count in _COUNTS if count != self.count)
        yield from (replace(self, phrase=phrase) for phrase in self.phrase.neighbours(further))


@dataclass(frozen=True)
class Family:
    """A family of image-free policies that share a weakness of rewards.

    Args:
        name: Name of the family.
        about: What its texts have in common.
        texts: Complete policies.
        phrases: Sentences of which texts are made, by falling frequency of their findings.
        values: Values of each slot.
        joined: Policy whose ``join`` and ``end`` the texts have.
        quotes: Whether the texts are sentences of the user's reports.
        weight: Share of the budget in relation to other families.
        combine: How the family uses the best texts of the other families; empty if it has texts of its own.
        first_rows: References of the first comparison; 0 for the usual number.
    """

    name: str
    about: str
    texts: tuple[Policy, ...] = ()
    phrases: tuple[Phrase, ...] = ()
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    joined: Policy = field(default_factory=lambda: Policy(()))
    quotes: bool = False
    weight: float = 1.0
    combine: Combination = ""
    first_rows: int = 0

    @property
    def edits(self) -> bool:
        """Whether the family edits honest reports."""
        return self.combine in ("append", "prepend", "cross_edits") or any(policy.edit for policy in self.texts)

    def policy(self, sentences: Sequence[str]) -> Policy:
        """Return the constant text with the given sentences."""
        return replace(self.joined, sentences=tuple(sentences))

    def common(self) -> Iterator[Policy]:
        """Yield texts of the most common findings, for each template and several numbers of findings."""
        for template in dict.fromkeys(phrase.template for phrase in self.phrases):
            own = [phrase.text for phrase in self.phrases if phrase.template == template]
            counts = range(2, len(own)) if len(own) <= _FEW else _COUNTS
            for count in (*(count for count in counts if count < len(own)), len(own)):
                yield self.policy(own[:count])
        if self.first_rows:
            texts = [phrase.text for phrase in self.phrases if phrase.template == self.phrases[0].template]
            yield from (self.policy(texts[start : start + _CHUNK]) for start in range(0, len(texts), _CHUNK))

    def listings(self) -> Iterator[Listing]:
        """Yield the listings of each phrase of which a slot is ``{other}``, template by template."""
        for template in dict.fromkeys(phrase.template for phrase in self.phrases if "{other}" in phrase.template):
            yield from (Listing(phrase, _LISTED) for phrase in self.phrases if phrase.template == template)


def family_names() -> tuple[str, ...]:
    """Return the names of all families, in the order of the search.

    Example:
        >>> family_names()[:3]
        ('normal', 'labels', 'findings')
    """
    return tuple(_settings()["families"])


def make_families(material: Material, names: Sequence[str] | None = None, edits: bool = True) -> list[Family]:
    """Make families from the findings, labels and sentences of reports.

    Args:
        material: Findings, labels and sentences.
        names: Names of the families. Default: all.
        edits: Whether to include families that edit honest reports.

    Raises:
        ValueError: If a name is unknown. The message names the nearest known one.
    """
    known = _settings()["families"]
    for name in names or ():
        if name not in known:
            raise ValueError(unknown_name_message("family", name, known))
    families = [_family(name, settings, material) for name, settings in known.items() if names is None or name in names]
    return [family for family in families if edits or not family.edits]


def _settings() -> dict[str, Any]:
    return package_yaml("rrg_rewards.attack", "exploits")


def _family(name: str, settings: Mapping[str, Any], material: Material) -> Family:
    joined = Policy((), join=settings.get("join", " "), end=settings.get("end", ""))
    source = settings.get("source")
    repeated = settings.get("repeat", {"texts": (), "counts": ()})
    texts = [*settings.get("texts", ()), *(text * n for text in repeated["texts"] for n in repeated["counts"])]
    if source == "reports":
        texts = list(material.reports)
    templates = ["{name}"] if source == "sentences" else settings.get("sentences", ())
    pools = {**vars(material), "characters": (*_CHARACTERS, *_settings()["characters"])}
    pool = pools[source if source == "sentences" else settings.get("pool", "findings")]
    # The findings come in the order of their frequency, so the first values of a slot are the most common ones.
    values = {"name": pool[:_MOST_VALUES], "other": pool[:_MOST_VALUES], **_settings()["slots"]} if templates else {}
    return Family(
        name=name,
        about=settings["about"],
        # A report that contains a brace is a constant text.
        texts=tuple(Policy((text,), edit="" if source else _edit(text)) for text in texts),
        phrases=tuple(_phrases(templates, pool, settings.get("capital", True))),
        values=values,
        joined=joined,
        quotes=source is not None,
        weight=settings.get("weight", 1.0),
        combine=settings.get("combine", ""),
        first_rows=settings.get("first_rows", 0),
    )


def _edit(text: str) -> Edit:
    return "report" if _has_slot(text, "report") else "sentence" if _has_slot(text, "sentence") else ""


def _phrases(templates: Sequence[str], pool: Sequence[str], capital: bool) -> Iterator[Phrase]:
    slots = _settings()["slots"]
    for row, name in enumerate(pool):
        values = {slot: options[row % len(options)] for slot, options in slots.items()}
        for template in templates:
            yield Phrase(template, {"name": name, "other": pool[(row + 1) % len(pool)], **values}, capital)
