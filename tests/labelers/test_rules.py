"""The rule labeler on sentences of its own: one table a schema, contract, copies, errors."""

import copy
import csv
import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.labelers import Labeler, RuleLabeler
from rrg_rewards.metrics import ReportCRG
from rrg_rewards.rewards import make_reward
from rrg_rewards.schemas import CHEXBERT, CT_RATE

TABLES = yaml.safe_load(Path(__file__).with_name("sentences.yaml").read_text(encoding="utf-8"))
CT, XRAY = TABLES["ct_rate"], TABLES["chexbert"]


def cases(table):
    return [
        (sentence, label, kind == "positive")
        for label, columns in table.items()
        for kind, sentences in columns.items()
        for sentence in sentences
    ]


@pytest.fixture(scope="module")
def ct():
    return RuleLabeler("ct_rate")


@pytest.fixture(scope="module")
def xray():
    return RuleLabeler("chexbert")


def positives(labeler, report):
    return {label for label, value in zip(labeler.labels, labeler([report])[0].tolist(), strict=True) if value}


@pytest.mark.parametrize(("sentence", "label", "positive"), cases(CT))
def test_rule_labeler_ct_rate(ct, sentence, label, positive):
    assert (label in positives(ct, sentence)) is positive


@pytest.mark.parametrize(("sentence", "label", "positive"), cases(XRAY))
def test_rule_labeler_chexbert(xray, sentence, label, positive):
    assert (label in positives(xray, sentence)) is positive


@pytest.mark.parametrize("schema", ["ct_rate", "chexbert"])
def test_rule_labeler_reads_the_names_of_labels(schema):
    labeler = RuleLabeler(schema)
    names = [label for label in labeler.labels if label != "No Finding"]
    for name in names:
        for text in (name, name.lower(), name.upper(), f"Impression: {name}", f"{name}: present"):
            assert positives(labeler, f"{text}.") - {"No Finding"} == {name}
        for text in (f"No {name}", f"There is no evidence of {name.lower()}", f"{name}: no", f"{name} is not seen"):
            assert positives(labeler, f"{text}.") <= {"No Finding"}, text


@pytest.mark.parametrize("schema", ["ct_rate", "chexbert"])
def test_rule_labeler_reads_the_names_of_labels_in_pairs(schema):
    labeler = RuleLabeler(schema)
    names = [label for label in labeler.labels if label != "No Finding"]
    for one, other in itertools.permutations(names, 2):
        for text in (f"{one}, {other.lower()}", f"{one} and {other.lower()}", f"{one}\n{other}"):
            assert positives(labeler, text) - {"No Finding"} == {one, other}, text
        assert positives(labeler, f"No {one.lower()}. {other}.") - {"No Finding"} == {other}
        assert positives(labeler, f"No {one.lower()}, {other.lower()} or abscess.") <= {"No Finding"}


@pytest.mark.parametrize(
    ("impression", "expected"),
    [
        ("Pleural effusion, calcified plaques in the aortic arch", {"Pleural effusion", "Arterial wall calcification"}),
        ("Calcified plaques in the aortic arch, coronary stent", {"Arterial wall calcification", "Medical material"}),
        ("Coronary stent, calcified plaques in the aortic arch", {"Arterial wall calcification", "Medical material"}),
        ("Emphysema, plaques in the LAD, thyroid nodule", {"Emphysema", "Coronary artery wall calcification"}),
        ("Thyroid nodule, nodule in the right lung", {"Lung nodule"}),
    ],
)
def test_rule_labeler_reads_impressions_joined_by_commas(ct, impression, expected):
    assert positives(ct, impression) == expected


def test_tables_cover_the_schemas_of_rule_labeler():
    assert tuple(CT) == CT_RATE.labels
    assert (*XRAY, "No Finding") == CHEXBERT.labels


@pytest.mark.parametrize(
    ("report", "positive"),
    [
        ("", False),
        (" \n", False),
        ("The lungs are clear. No effusion.", True),
        ("Sternotomy wires.", True),
        ("Small effusion.", False),
        ("Possible small effusion.", False),
        ("Sternotomy wires. Cardiomegaly.", False),
    ],
)
def test_rule_labeler_no_finding(xray, report, positive):
    assert ("No Finding" in positives(xray, report)) is positive


def test_rule_labeler_is_a_labeler(ct):
    assert isinstance(ct, Labeler)
    assert ct.labels == CT_RATE.labels
    assert ct.signature.startswith("rules|schema:ct_rate|lexicon:")
    assert ct.signature != RuleLabeler("chexbert").signature


def test_rule_labeler_shape_and_type(ct):
    labels = ct(["Emphysema.", "", " \n "])
    assert labels.shape == (3, 18)
    assert labels.dtype is torch.bool
    assert labels.sum(1).tolist() == [1, 0, 0]
    assert ct([]).shape == (0, 18)
    assert ct(("Emphysema.",)).shape == (1, 18)


def test_rule_labeler_on_a_large_report(ct):
    unit = "Ground-glass areas in both lungs. No pleural effusion. A nodule, 4 mm, in the left lung. "
    assert torch.equal(ct([unit * 12_000]), ct([unit]))
    endless = "emphysema and pleural effusion "
    assert torch.equal(ct([endless * 30_000]), ct([endless]))


@pytest.mark.parametrize(
    "report", ["\x00\x07 emphysema \x1f", "emphysema\u200b\u202e", "İ emphysema", "emphysema\n\n\n"]
)
def test_rule_labeler_on_odd_characters(ct, report):
    assert ct([report]).any()


def test_rule_labeler_explain(ct, xray):
    report = "No effusion. Emphysema in both lungs. Bullae. Possible consolidation."
    reasons = ct.explain(report)
    assert {label: [finding.text for finding in found] for label, found in reasons.items()} == {
        "Emphysema": ["Emphysema", "Bullae"]
    }
    assert all(report[f.start : f.end] == f.text for found in reasons.values() for f in found)
    assert xray.explain("No effusion.") == {"No Finding": []}
    with pytest.raises(TypeError, match=r"report\[0\] must be a report text, got int"):
        ct.explain(3)


@pytest.mark.parametrize(
    ("report", "sides"),
    [
        (
            "5 mm nodule in the right upper lobe and left pleural effusion.",
            {"Lung nodule": ("right", 5.0), "Pleural effusion": ("left", None)},
        ),
        (
            "Patchy ground glass densities and focal consolidations are observed in both lungs.",
            {"Lung opacity": ("bilateral", None), "Consolidation": ("bilateral", None)},
        ),
        # What another finding has, also one without a label, is not the finding's.
        ("Left pneumothorax of 8 mm, with a nodule in the right lung.", {"Lung nodule": ("right", None)}),
    ],
)
def test_rule_labeler_explain_gives_each_finding_its_own_attributes(ct, report, sides):
    found = {label: findings[0] for label, findings in ct.explain(report).items()}
    assert {label: (finding.laterality, finding.size_mm) for label, finding in found.items()} == sides


def test_rule_labeler_copies_and_pickles(ct):
    ct(["Emphysema."])
    assert copy.deepcopy([ct])[0] is ct
    restored = pickle.loads(pickle.dumps(ct))
    assert len(pickle.dumps(ct)) < 300
    assert restored.signature == ct.signature
    assert torch.equal(restored(["Emphysema."]), ct(["Emphysema."]))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("ct_rat", "did you mean 'ct_rate'"),
        ("merlin", "'merlin' has no rules; schemas with rules: chexbert, ct_rate"),
    ],
)
def test_rule_labeler_rejects_unknown_schemas(schema, message):
    with pytest.raises(ValueError, match=message):
        RuleLabeler(schema)


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        ("Emphysema.", r"got one string; pass \[reports\]"),
        (["Emphysema.", None], r"reports\[1\] must be a report text, got NoneType"),
        ([3.5], r"reports\[0\] must be a report text, got float"),
    ],
)
def test_rule_labeler_rejects_wrong_reports(ct, reports, message):
    with pytest.raises(TypeError, match=message):
        ct(reports)


@given(st.lists(st.sampled_from([sentence for sentence, _, _ in cases(CT)]), max_size=8))
def test_rule_labeler_batch_is_one_by_one_and_report_is_union(sentences):
    ct = RuleLabeler("ct_rate")
    batch = ct(sentences)
    assert torch.equal(batch, torch.cat([ct([sentence]) for sentence in sentences] or [batch]))
    for separator in (". ", "\n", "; ", '." '):
        assert torch.equal(ct([separator.join(sentences)])[0], batch.any(0))


OWN = """
extends: chest_ct
concepts: {azygos_lobe: [azygos lobe|fissure]}
labels: {Azygos lobe: [azygos_lobe], Hiatal hernia: [hiatal_hernia], No Finding: []}
"""


@pytest.fixture
def own_lexicon(tmp_path):
    path = tmp_path / "my_lexicon.yaml"
    path.write_text(OWN)
    return path


def test_rule_labeler_with_a_lexicon_file(own_lexicon, monkeypatch):
    monkeypatch.chdir(own_lexicon.parent)
    labeler = RuleLabeler("my_lexicon.yaml")
    reports = ["Azygos fissure.", "No azygos lobe. Hiatal hernia.", "Emphysema."]
    expected = [[True, False, False], [False, True, False], [False, False, True]]
    assert labeler(reports).tolist() == expected
    assert labeler.signature.startswith("rules|schema:my_lexicon|lexicon:")
    copied = pickle.dumps(labeler)
    monkeypatch.chdir("/")
    assert pickle.loads(copied)(reports).tolist() == expected


def test_rule_labeler_with_a_lexicon_file_in_metrics_and_rewards(own_lexicon):
    metric = ReportCRG(str(own_lexicon))
    assert metric.labeler.labels == ("Azygos lobe", "Hiatal hernia", "No Finding")
    reward = make_reward("crg", labeler=str(own_lexicon), prior=0.3)
    scores = reward(completions=["Azygos fissure."], reference=["Azygos lobe."])
    expected = ReportCRG(str(own_lexicon), prior=0.3).score(["Azygos fissure."], ["Azygos lobe."]).value
    assert scores == expected.tolist()


def test_rule_labeler_rejects_a_lexicon_file_without_labels(own_lexicon):
    own_lexicon.write_text("concepts: {a: [b]}")
    with pytest.raises(ValueError, match="labels: must name 1 to 62 labels with their concepts, got 0"):
        RuleLabeler(own_lexicon)
    many = "".join(f"  L{i}: [a]\n" for i in range(63))
    own_lexicon.write_text(f"concepts: {{a: [b]}}\nlabels:\n{many}")
    with pytest.raises(ValueError, match="got 63"):
        RuleLabeler(own_lexicon)
    own_lexicon.write_text(f"concepts: {{a: [b]}}\nlabels:\n{many.replace('  L62: [a]', '')}")
    assert RuleLabeler(own_lexicon)(["b"]).sum() == 62


def counts(path, text_column, prefix=""):
    """Per-label true positives, false positives and false negatives, shape ``(L, 3)``."""
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    labeler = RuleLabeler("ct_rate")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    predicted = labeler([row[text_column] for row in rows]).numpy()
    true = np.array([[float(row[prefix + label]) > 0.5 for label in labeler.labels] for row in rows])
    return np.stack([(predicted & true).sum(0), (predicted & ~true).sum(0), (~predicted & true).sum(0)], axis=1)


def f1(tp, fp, fn):
    return 2 * tp / (2 * tp + fp + fn)


def test_rule_labeler_macro_f1_on_ct_rate(shared_data):
    per_label = counts(shared_data / "ct_rate_labels" / "reports.csv", "report_text")
    scores = [f1(*row) for row in per_label.tolist()]
    assert np.mean(scores) >= 0.95
    assert min(scores) >= 0.85


@pytest.mark.parametrize("side", ["GT", "Pred"])
def test_rule_labeler_micro_f1_on_reports_of_another_hospital(shared_data, side):
    per_label = counts(shared_data / "reg2rg_ctrg" / "pairs.csv", f"{side}_whole_report", f"{side}_")
    assert f1(*per_label.sum(0).tolist()) >= 0.80


def test_rule_labeler_without_a_belly_a_comma_does_not_part_what_has_no_organ():
    # The lexicon of chest X-ray does not have the organ whose sections can contain another one.
    report = "Calcific nodules, linear fibrotic densities are observed in the upper lobe of the right lung."
    labeler = RuleLabeler("chexbert")
    assert [label for label, positive in zip(labeler.labels, labeler([report])[0], strict=True) if positive] == [
        "Lung Lesion"
    ]
