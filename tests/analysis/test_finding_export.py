"""Findings of reports as plain data."""

import json

import pytest

from rrg_rewards.analysis import FindingExport, FindingExportSettings, findings_of_report
from rrg_rewards.data.tables.table import Table
from rrg_rewards.findings import read_findings
from rrg_rewards.utilities.settings import SettingError

REPORT = "8 mm nodule in the right upper lobe. No effusion.\nThe flumox is glanky. Thickened bladder wall."


def test_findings_of_report_are_those_of_read_findings():
    found, reading = findings_of_report(REPORT), read_findings(REPORT)
    assert json.loads(json.dumps(found)) == found
    assert [(one["concept"], one["presence"]) for one in found["findings"]] == [
        (one.concept, one.presence) for one in reading.findings
    ]
    assert found["findings"][0]["attributes"] == {"laterality": "right", "location": ["upper"], "size_mm": 8.0}
    assert [REPORT[one["start"] : one["end"]] for one in found["findings"]] == [
        one["text"] for one in found["findings"]
    ]
    assert [REPORT[one["start"] : one["end"]] for one in found["unread"]] == ["flumox is glanky"]
    assert (found["num_words"], found["num_unread"]) == (reading.num_words, reading.num_unread)


def test_findings_of_report_has_codes_of_concepts_and_words_of_open_findings():
    nodule, effusion, wall = findings_of_report(REPORT)["findings"]
    assert effusion["codes"] == {"hpo": "HP:0002202", "snomed": "60046008"}
    assert (wall["concept"], wall["codes"], "words" in nodule) == ("other_finding", {}, False)
    assert "wall" in wall["words"]


def test_finding_export_counts_what_it_yields():
    table = Table({"id": ["a", "b", "c"], "report": [REPORT, None, " "]})
    export = FindingExport([table, table], FindingExportSettings(text_column="report", id_column="id"))
    items = list(export)
    assert [(item["row"], item["id"]) for item in items] == list(enumerate("abcabc", start=1))
    assert [item["findings"] is None for item in items] == [False, True, True] * 2
    assert (export.rows, export.missing, export.findings["lung_nodule"]) == (6, 4, 2)
    assert export.findings["pleural_effusion"] == 0
    assert export.summary()["num_unread"] == 2 * read_findings(REPORT).num_unread > 0


def test_finding_export_names_a_wrong_lexicon():
    with pytest.raises(SettingError, match="chest_ct"):
        FindingExport([], FindingExportSettings(text_column="report", lexicon="chest_cd"))
