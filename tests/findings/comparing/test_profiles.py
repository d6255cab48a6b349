"""Profiles: the written convention for chest CT sentence by sentence, files of users, and what they change."""

from importlib.resources import files
from pathlib import Path

import pytest

from rrg_rewards.findings import compare_findings
from rrg_rewards.findings.comparing.profiles import LEVEL_NAMES, get_profile
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.yaml_files import package_yaml
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)


def by_level(levels):
    return sorted(LEVEL_NAMES[level] for level in levels)


@pytest.mark.parametrize(("statement", "report", "levels"), TABLES["levels"])
def test_levels_of_the_convention_for_ct(statement, report, levels):
    found = compare_findings(report, "", open_findings=True, profile="ct")
    assert sorted(found.reference_significance) == by_level(levels), statement


@pytest.mark.parametrize(("statement", "reference", "candidate", "missing", "false", "errors"), TABLES["pairs"])
def test_pairs_of_the_convention_for_ct(statement, reference, candidate, missing, false, errors):
    found = compare_findings(reference, candidate, open_findings=True, profile="ct")
    assert sorted(found.reference_significance[i] for i in found.missing) == by_level(missing), statement
    assert sorted(found.candidate_significance[i] for i in found.false) == by_level(false), statement
    made = [(error.type, error.significant) for match in found.matches for error in match.discrepancies]
    assert sorted(made) == sorted(errors), statement


PACKAGE = Path(str(files("rrg_rewards.findings.knowledge.profiles")))
ROW = "significance: [{concepts: [lung_nodule], then: benign, source: mine}]"


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("name", ["published", "ct"])
def test_rows_of_the_package_are_valid_rows_of_a_file(name):
    # Raises for a row without a source, and for concepts, contexts, attributes and settings that do not exist.
    get_profile(PACKAGE / f"{name}.yaml")


def test_every_concept_has_a_level_of_its_own():
    rows = [row for row in get_profile("published").significance if "if" not in row]
    named = [concept for row in rows for concept in row.get("concepts", ())]
    assert sorted(named) == sorted(load_knowledge("concepts")["concepts"])


def test_ct_replaces_settings_and_no_row_in_vain():
    base, profile = get_profile("published"), get_profile("ct")
    for row in package_yaml("rrg_rewards.findings.knowledge.profiles", "ct")["settings"]:
        assert profile[row["name"]] != base[row["name"]], row


def test_rows_of_an_extending_profile_come_after_those_on_the_patient():
    nodule = ("Solid nodule of 5 mm.", "")
    assert compare_findings(*nodule, profile="ct").reference_significance == (LEVEL_NAMES["not_actionable"],)
    known = compare_findings(*nodule, {"indication": "Lung cancer."}, profile="ct")
    assert known.reference_significance == (LEVEL_NAMES["actionable"],)


@pytest.mark.parametrize("extended", ["published", "ct"])
def test_a_file_extends_a_profile(written, extended):
    path = written(f"extends: {extended}\n{ROW}\nsettings: [{{name: severity_steps, value: 1, source: mine}}]\n")
    found = compare_findings("Nodule of 9 mm. Mild emphysema.", "Nodule of 9 mm. Moderate emphysema.", profile=path)
    assert found.reference_significance[0] == LEVEL_NAMES["benign"]
    assert [error.significant for match in found.matches for error in match.discrepancies] == [True]
    assert get_profile(path)["several_in_one"] == (extended == "published")
    name = get_profile(path).name
    written(ROW)
    assert name.startswith("mine.yaml:")
    assert name != get_profile(path).name


def test_a_file_relates_concepts_that_are_unrelated(written):
    path = written("matches: [{of: [emphysema], with: [hiatal_hernia], as: negligible, source: mine}]")
    (match,) = compare_findings("Emphysema.", "Hiatal hernia.", profile=path).matches
    assert not match.discrepancies[0].significant
    assert not compare_findings("Emphysema.", "Hiatal hernia.").matches


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("extends: cts", "'ct'"),
        ("extends: mine.yaml", "extends"),
        ("significanc: []", "'significance'"),
        ("significance: {then: benign}", "significance"),
        ("significance: [benign]", "row 1"),
        ("significance: [{then: benign}]", "row 1.* source"),
        ("significance: [{then: benign, source: 3}]", "row 1, source"),
        (f"{ROW[:-1]}, {{concepts: [lung_nodul], then: benign, source: mine}}]", "row 2, concepts.*'lung_nodule'"),
        ("significance: [{concepts: lung_nodule, then: benign, source: mine}]", "row 1, concepts"),
        ("significance: [{kinds_of: [3], then: benign, source: mine}]", "row 1, kinds_of"),
        ("significance: [{then: bening, source: mine}]", "row 1, then.*'benign'"),
        ("significance: [{if: 3, then: benign, source: mine}]", "row 1, if"),
        ("significance: [{if: {size_blow: 3}, then: benign, source: mine}]", "row 1, if.*'size_below'"),
        ("significance: [{if: {size_below: x}, then: benign, source: mine}]", "row 1, size_below"),
        ("significance: [{if: {not_severity: [milt]}, then: benign, source: mine}]", "row 1, not_severity.*'mild'"),
        ("significance: [{if: {context: [cancr]}, then: benign, source: mine}]", "row 1, context.*'cancer'"),
        ("matches: [{of: [emphysema], with: [bulla], as: non, source: mine}]", "row 1, as.*'none'"),
        ("matches: [{of: [bulla], with: [bulla], as: none, context: trauma, source: mine}]", "row 1"),
        ("settings: [{name: severity_stps, value: 1, source: mine}]", "row 1, name.*'severity_steps'"),
        ("settings: [{name: severity_steps, value: true, source: mine}]", "row 1, value"),
        ("settings: [{name: size_margins, value: [{form: 0, mm: 2}], source: mine}]", "row 1, value.*'from'"),
        ("settings: [{name: size_margins, value: [{from: 0, mm: x}], source: mine}]", "row 1, value"),
        ("settings: [{name: parts, value: {pneumonia: consolidation}, source: mine}]", "row 1, value"),
        (
            "settings: [{name: parts, value: {pneumonia: [consolidations]}, source: mine}]",
            "row 1, value.*'consolidation'",
        ),
        ("settings: [{name: each_side, value: [lung_nodul], source: mine}]", "row 1, value.*'lung_nodule'"),
        ("!!python/object/apply:os.getcwd []", "mine.yaml"),
        ("significance: [", "mine.yaml"),
    ],
)
def test_errors_of_a_file_name_the_row_in_one_line(written, text, named):
    with pytest.raises(SettingError, match=named) as error:
        get_profile(written(text))
    assert error.value.setting == "profile"
    assert "\n" not in str(error.value)


def test_parts_of_one_another_are_one_finding(written):
    path = written("settings: [{name: parts, value: {emphysema: [bulla], bulla: [emphysema]}, source: mine}]")
    found = compare_findings("Emphysema with bulla in the right lung.", "Hiatal hernia. " * 400, profile=path)
    assert [finding.concept for finding in found.reference] == ["emphysema"]
    assert found.reference[0].laterality == "right"


def test_unknown_profile(tmp_path):
    with pytest.raises(SettingError, match="'ct'") as error:
        compare_findings("", "", profile="cte")
    assert error.value.setting == "profile"
    with pytest.raises(FileNotFoundError, match="mine"):
        get_profile(tmp_path / "mine.yaml")


def test_page_has_the_scores_of_both_profiles():
    page = (Path(__file__).parents[3] / "docs" / "crimson.md").read_text(encoding="utf-8")
    table = page.split("Where the two profiles differ, by score:")[1].split("\n\n")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert len(rows) > 5
    for reference, candidate, *shown, _ in rows:
        scores = [CRIMSON(profile=profile).score([candidate], [reference]).value for profile in ("published", "ct")]
        assert [f"{score.item():.3g}" for score in scores] == shown, (reference, candidate)
        assert len(set(shown)) == 2
