"""Findings of the reports of a table as plain data, one object per report."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rrg_rewards.analysis.settings import Batches
from rrg_rewards.data.tables.table import Table
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.engine import read_findings
from rrg_rewards.findings.reading.finding import Finding
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.utilities.settings import SettingError, setting

# Vocabularies of the codes in knowledge/concepts.yaml.
_CODES = ("oifm", "hpo", "snomed")


@dataclass(frozen=True, kw_only=True)
class FindingExportSettings(Batches):
    """How the findings of a table are exported. Objects contain the names of reports as ``id``."""

    text_column: str = setting(help="column of the report texts", metavar="NAME")
    id_column: str | None = setting(None, "column of the names of reports, such as studies", metavar="NAME")
    lexicon: str = setting(
        "chest", "lexicon: chest, chest_ct, chest_xray, abdomen or a YAML file (default: chest)", metavar="NAME"
    )


def findings_of_report(report: str, lexicon: str = "chest") -> dict[str, Any]:
    """Return the findings of a report and the words that were not read, as data that JSON can represent.

    Args:
        report: Report text.
        lexicon: Lexicon as in :func:`~rrg_rewards.findings.get_engine`.

    Returns:
        ``findings``: for each mention ``concept``, ``presence``, ``organ``, ``start``, ``end`` and ``text``, the number
        of its ``sentence``, the stated ``attributes``, the ``codes`` of the concept (``oifm``: Open
        Imaging Finding Model, ``hpo``: Human Phenotype Ontology, ``snomed``: SNOMED CT), and the ``words`` of an open
        finding; ``unread``: ``start``, ``end`` and ``text`` of the words that were not read; ``num_words`` and
        ``num_unread``: numbers of content words. Offsets count characters.

    Raises:
        TypeError: If the report is not a string.
        ValueError: If the lexicon is unknown.

    Example:
        >>> found = findings_of_report("Small left pleural effusion.")["findings"][0]
        >>> found["concept"], found["codes"]["hpo"], found["attributes"]
        ('pleural_effusion', 'HP:0002202', {'laterality': 'left', 'severity': 'mild'})
    """
    reading = read_findings(report, lexicon)
    return {
        "findings": list(map(_plain, reading.findings)),
        "unread": [span._asdict() for span in reading.unread],
        "num_words": reading.num_words,
        "num_unread": reading.num_unread,
    }


def _plain(finding: Finding) -> dict[str, Any]:
    entry: Mapping[str, Any] = load_knowledge("concepts")["concepts"].get(finding.concept, {})
    attributes = finding.attributes._asdict()
    attributes["places"] = [place._asdict() for place in finding.attributes.places]
    fields = finding._asdict() | {
        "attributes": {name: _listed(value) for name, value in attributes.items() if value},
        "codes": {name: str(entry[name]) for name in _CODES if name in entry},
        "words": list(finding.words),
    }
    # Mentions have no alternatives; only open findings have words.
    return {name: value for name, value in fields.items() if name != "alternatives" and (name != "words" or value)}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


class FindingExport:
    """Findings of the reports of a table, one object per row.

    Args:
        batches: The table in batches.
        settings: The columns and the lexicon.

    Attributes:
        rows: Number of rows that were read.
        missing: Number of missing or blank reports.
        findings: Number of present and uncertain mentions of each concept.
        num_words: Number of content words of the reports.
        num_unread: Number of those that were not read.

    Raises:
        SettingError: If the lexicon is unknown.

    Example:
        >>> table = Table({"report": ["Hiatal hernia.", None]})
        >>> export = FindingExport([table], FindingExportSettings(text_column="report"))
        >>> [item["findings"] and item["findings"][0]["concept"] for item in export]
        ['hiatal_hernia', None]
        >>> export.rows, export.missing
        (2, 1)
    """

    def __init__(self, batches: Iterable[Table], settings: FindingExportSettings) -> None:
        try:
            load_lexicon(settings.lexicon)
        except (ValueError, FileNotFoundError) as error:
            raise SettingError("lexicon", str(error)) from error
        self._batches, self._settings = batches, settings
        self.rows = self.missing = self.num_words = self.num_unread = 0
        self.findings: Counter[str] = Counter()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield an object for each row: ``row``, ``id`` and what :func:`findings_of_report` returns.

        The findings of a missing or blank report are ``None``: nothing is known about it.

        Raises:
            TableError: If a column does not exist, or a cell is not a text.
        """
        for table in self._batches:
            ids = table.column(self._settings.id_column) if self._settings.id_column else None
            for row, text in enumerate(table.texts(self._settings.text_column)):
                self.rows += 1
                head = {"row": self.rows, **({} if ids is None else {"id": ids[row]})}
                if text is None or not text.strip():
                    self.missing += 1
                    yield {**head, "findings": None}
                    continue
                found = findings_of_report(text, self._settings.lexicon)
                self.findings.update(one["concept"] for one in found["findings"] if one["presence"] != "absent")
                self.num_words += found["num_words"]
                self.num_unread += found["num_unread"]
                yield {**head, **found}

    def summary(self) -> dict[str, Any]:
        """Return the counts of the rows that were read, as plain data."""
        return {
            "rows": self.rows,
            "missing": self.missing,
            "findings": dict(self.findings.most_common()),
            "num_words": self.num_words,
            "num_unread": self.num_unread,
        }
