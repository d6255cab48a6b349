"""Phantom volumes: the content of a report can be read from its volume, and only from its volume."""

import hashlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rrg_rewards.data import (
    PhantomFinding,
    phantom_mark,
    phantom_studies,
    phantom_volume,
    phantom_volume_rows,
    write_phantom_volumes,
)
from rrg_rewards.data.phantom.volumes import box_cells, load_anatomy
from rrg_rewards.data.phantom.wording import STYLES, load_wording
from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.features import read_features
from rrg_rewards.utilities.yaml_files import package_yaml

LOBES = ("upper", "middle", "lower")


def volumes(studies, **arguments):
    """Volumes ``(studies, cells, channels)``."""
    return (
        np.stack([phantom_volume(study, **arguments) for study in studies])
        .reshape(len(studies), 512, 32)
        .astype(np.float32)
    )


def labels_of(studies):
    return np.array([study.labels for study in studies])


def learned_directions(tokens, labels):
    """Estimate one direction per label from data: its effect on the tokens, by least squares in each cell.

    It is then sharpened on the cell that shows most of it, since small findings are seldom in one place twice.
    """
    design = np.column_stack([labels, np.ones(len(labels))])
    effects = np.linalg.lstsq(design, tokens.reshape(len(tokens), -1), rcond=None)[0][:-1]
    # Subtract the mean of each cell; otherwise the direction would encode the usual places of findings.
    tokens = tokens - tokens.mean(axis=0)
    directions = []
    for effect, label in zip(effects.reshape(len(effects), *tokens.shape[1:]), labels.T, strict=True):
        direction = np.linalg.svd(effect, full_matrices=False)[2][0]
        direction *= np.sign((effect @ direction)[np.abs(effect @ direction).argmax()])
        for _ in range(5):
            most = tokens[np.arange(len(tokens)), (tokens @ direction).argmax(axis=1)]
            direction = most[label == 1].mean(axis=0) - most[label == 0].mean(axis=0)
        directions.append(direction / np.linalg.norm(direction))
    return np.stack(directions)


def pooled(tokens, directions):
    """The largest, the fourth and the sixteenth largest projection of the cells of each volume."""
    return np.sort(tokens @ directions.T, axis=1)[:, [-1, -4, -16]].reshape(len(tokens), -1)


def probe(features, labels, held_out):
    """Labels of held-out studies by a logistic regression."""
    model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", C=0.3, max_iter=300))
    return model.fit(features, labels).predict(held_out)


def probe_labels(train, labels, held_out):
    return np.column_stack([probe(train, column, held_out) for column in labels.T])


def accuracies(truth, found):
    """Balanced accuracy of each label."""
    return [balanced_accuracy_score(*columns) for columns in zip(truth.T, found.T, strict=True)]


@pytest.fixture(scope="module", params=["compact", pytest.param("full", marks=pytest.mark.slow)])
def corpora(request):
    """Studies to learn from and studies to be tested on."""
    return phantom_studies(700, seed=0, style=request.param), phantom_studies(400, seed=1, style=request.param)


def test_phantom_volume_every_label_can_be_read_from_held_out_volumes_and_from_no_others(corpora):
    train, test = corpora
    labels, truth = labels_of(train), labels_of(test)
    tokens, unseen = volumes(train), volumes(test)
    directions = learned_directions(tokens, labels)
    features, unseen_features = pooled(tokens, directions), pooled(unseen, directions)
    read = probe_labels(features, labels, unseen_features)
    found = accuracies(truth, read)
    assert min(found) > 0.95, dict(zip(CT_RATE.labels, found, strict=True))
    assert np.mean(found) > 0.98
    # The volumes of other patients carry no information.
    shuffled = np.random.default_rng(0).permutation(len(test))
    chance = accuracies(truth, read[shuffled])
    assert abs(np.mean(chance) - 0.5) < 0.04
    # Small findings are lost in the mean over all cells.
    small = [CT_RATE.labels.index(name) for name in ("Lung nodule", "Hiatal hernia", "Lymphadenopathy")]
    means = accuracies(truth[:, small], probe_labels(tokens.mean(axis=1), labels[:, small], unseen.mean(axis=1)))
    assert max(means) < 0.75
    assert max(means) < min(found[i] for i in small) - 0.2


def test_phantom_volume_much_noise_hides_everything(corpora):
    train, test = corpora
    labels, truth = labels_of(train), labels_of(test)
    tokens, unseen = volumes(train, noise=100.0), volumes(test, noise=100.0)
    # Even the true directions do not help.
    directions = np.stack([phantom_mark(name) for name in CT_RATE.labels])
    found = accuracies(truth, probe_labels(pooled(tokens, directions), labels, pooled(unseen, directions)))
    assert abs(np.mean(found) - 0.5) < 0.04


@pytest.mark.parametrize("concept", ["Consolidation", pytest.param("Lung nodule", marks=pytest.mark.slow)])
@pytest.mark.parametrize("attribute", ["side", pytest.param("lobe", marks=pytest.mark.slow)])
def test_phantom_volume_side_and_lobe_can_be_read_from_the_token_that_shows_the_finding(concept, attribute):
    def tokens_and_places(seed):
        tokens, places = [], []
        for study in phantom_studies(1500, seed=seed, style="compact"):
            for finding in study.findings:
                if finding.concept == concept and finding.presence == "present":
                    cells = phantom_volume(study).reshape(512, 32).astype(float)
                    tokens.append(cells[(cells @ phantom_mark(concept)).argmax()])
                    places.append(getattr(finding, attribute))
        return np.array(tokens), places

    held_out, truth = tokens_and_places(1)
    assert balanced_accuracy_score(truth, probe(*tokens_and_places(0), held_out)) > 0.9


@pytest.mark.parametrize("severity", [("small", "large"), ("small", "moderate")])
def test_phantom_volume_severity_shows(severity):
    def strongest(study):
        return np.sort(phantom_volume(study).reshape(512, 32) @ phantom_mark("Pericardial effusion"))[-8:].mean()

    weak, strong = (
        [
            strongest(replace(study, findings=(PhantomFinding("Pericardial effusion", severity=name),)))
            for study in phantom_studies(100, style="compact")
        ]
        for name in severity
    )
    assert np.mean(weak) + 2 * np.std(weak) < np.mean(strong)


def marks(finding, **arguments):
    """Return the strengths ``grid`` that a finding adds to a volume without noise, and check all other directions."""
    study = phantom_studies(1, style="compact")[0]
    without = phantom_volume(replace(study, findings=()), noise=0, **arguments).astype(float)
    added = phantom_volume(replace(study, findings=(finding,)), noise=0, **arguments) - without
    mark = phantom_mark(finding.concept, finding.kind, arguments.get("channels", 32))
    strengths = added @ mark
    np.testing.assert_allclose(added, strengths[..., None] * mark, atol=5e-3)
    return np.where(strengths > 0.1, strengths, 0)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("lobe", LOBES)
@pytest.mark.parametrize("cells", [8, 12, 24])
def test_phantom_volume_finding_lies_on_its_side_and_at_its_height(side, lobe, cells):
    if (side, lobe) == ("left", "middle"):
        return
    strengths = marks(PhantomFinding("Consolidation", side=side, lobe=lobe), grid=(cells,) * 3)
    z, y, x = (places.mean() / cells for places in np.nonzero(strengths))
    assert (x < 0.5) == (side == "right")
    if lobe == "upper":
        assert z > 0.5
    else:
        assert z < 0.55
        assert (y < 0.5) == (lobe == "middle")


def test_phantom_volume_finding_in_both_lungs_lies_in_both_and_one_without_a_side_in_one():
    def sides(finding):
        x = np.nonzero(marks(finding))[2]
        return (x < 4).any(), (x >= 4).any()

    assert sides(PhantomFinding("Consolidation", side="bilateral")) == (True, True)
    assert sides(PhantomFinding("Emphysema")) == (True, True)
    assert sum(sides(PhantomFinding("Lung nodule"))) == 1


def test_phantom_volume_what_is_larger_or_more_severe_takes_more_cells_and_is_stronger():
    def extent(**attributes):
        strengths = marks(PhantomFinding(**attributes))
        return (strengths > 0).sum(), strengths.max()

    nodules = [extent(concept="Lung nodule", side="left", lobe="upper", size_mm=size) for size in (4, 8, 22)]
    effusions = [extent(concept="Pleural effusion", side="right", severity=s) for s in ("small", "moderate", "large")]
    for growing in (nodules, effusions):
        assert [cells for cells, _ in growing] == sorted({cells for cells, _ in growing})
        assert [strength for _, strength in growing] == sorted({strength for _, strength in growing})


@pytest.mark.parametrize("presence", ["absent", "uncertain"])
def test_phantom_volume_what_is_denied_or_uncertain_leaves_no_mark(presence):
    assert not marks(PhantomFinding("Lung nodule", presence, side="left", lobe="upper")).any()


def test_phantom_volume_findings_outside_the_labels_leave_marks():
    # The abdomen ends low in the volume. The patient's right has small x.
    z, _, x = np.nonzero(marks(PhantomFinding("renal cyst", side="left", size_mm=20)))
    assert z.max() <= 1
    assert x.min() >= 4


def test_phantom_volume_kinds_of_a_concept_are_alike_and_can_be_told_apart():
    plain, solid, cystic = (phantom_mark("Lung nodule", kind) for kind in (None, "solid", "cystic"))
    assert plain @ solid > 0.8
    assert plain @ cystic > 0.8
    assert solid @ cystic < 0.95
    assert abs(phantom_mark("Lung nodule") @ phantom_mark("Emphysema")) < 0.6


def emitted_findings(style):
    """Every finding that a style can state, in all its attributes."""
    wording = load_wording(style)
    for topic in (*wording.topics, *wording.distractors):
        for concept in topic.concepts:
            for side, lobe in (*topic.where, (None, None)):
                yield PhantomFinding(concept, side=side, lobe=lobe)
                for kind in topic.kinds:
                    yield PhantomFinding(concept, side=side, lobe=lobe, kind=kind)
            for severity in (None, *topic.severities):
                for size in (None, *topic.sizes):
                    yield PhantomFinding(concept, severity=severity, size_mm=size)


@pytest.mark.parametrize("style", STYLES)
def test_anatomy_has_every_place_and_degree_that_a_report_can_state(style):
    anatomy = load_anatomy()
    for finding in emitted_findings(style):
        regions = anatomy.regions(finding)
        if finding.side == "bilateral":
            assert {region.side for region in regions} in ({"right", "left"}, {None})
        strength, share = anatomy.extent(finding)
        assert strength > 0.5
        assert 0 < share <= 1


def test_anatomy_mirrors_places_with_sides_and_every_box_covers_a_cell():
    anatomy = load_anatomy()
    for regions in anatomy.organs.values():
        for region in regions:
            z0, z1, y0, y1, x0, x1 = region.box
            assert all(0 <= low < high <= 1 for low, high in ((z0, z1), (y0, y1), (x0, x1)))
            assert region.side is None or (x0 + x1 < 1) == (region.side == "right")
            for grid in ((1, 1, 1), (2, 3, 5), (8, 8, 8), (24, 24, 24)):
                assert box_cells(region.box, grid).size
    # The lobes of a lung do not overlap, so a cell has one lobe.
    for side in ("right", "left"):
        cells = [box_cells(r.box, (24, 24, 24)) for r in anatomy.organs["lung"] if r.side == side]
        assert np.unique(np.concatenate(cells)).size == sum(map(len, cells))


def test_anatomy_names_what_it_has():
    config = package_yaml("rrg_rewards.data.phantom", "anatomy")
    for concept in config["concepts"].values():
        assert {concept["organ"], *concept.get("kinds", {}).values()} <= config["organs"].keys()
        assert concept["pattern"] in ("focal", "diffuse")
        assert concept.get("sides", "one") in ("one", "both")


DIGEST = """
import hashlib
from rrg_rewards.data import phantom_studies, phantom_volume
volumes = [phantom_volume(s, (4, 5, 6), 16).tobytes() for s in phantom_studies(20, style="full")]
print(hashlib.sha256(b"".join(volumes)).hexdigest())
"""


def test_phantom_volume_study_gives_the_same_bytes_in_any_process_and_order():
    studies = phantom_studies(20, style="full")[::-1]
    here = b"".join([phantom_volume(study, (4, 5, 6), 16).tobytes() for study in studies][::-1])
    run = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True, timeout=120)
    assert run.stdout.strip() == hashlib.sha256(here).hexdigest()


def test_phantom_volume_arguments_change_what_they_say_and_nothing_else():
    study = phantom_studies(1, style="compact")[0]
    quiet, loud = (phantom_volume(study, noise=noise).astype(float) for noise in (0, 2))
    assert np.linalg.norm(loud - quiet, axis=-1).mean() == pytest.approx(2, rel=0.05)
    assert not np.allclose(quiet, phantom_volume(study, noise=0, seed=1))
    wide = phantom_volume(study, (24, 24, 24), 512)
    assert wide.shape == (24, 24, 24, 512)
    assert wide.dtype == np.float16
    assert np.isfinite(wide).all()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"grid": (8, 8)}, "grid must be three positive numbers"),
        ({"grid": (8, 0, 8)}, "grid must be three positive numbers"),
        ({"channels": 11}, "channels must be at least 12"),
        ({"noise": -1}, "noise must be finite and not negative"),
        ({"noise": float("nan")}, "noise must be finite and not negative"),
    ],
)
def test_phantom_volume_arguments_that_make_no_volume_are_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        phantom_volume(phantom_studies(1)[0], **arguments)


def test_write_phantom_volumes_as_the_published_features_are(tmp_path):
    studies = phantom_studies(3, style="compact")
    steps = []
    paths = write_phantom_volumes(studies, tmp_path / "volumes", grid=(2, 3, 4), channels=16, progress=steps.append)
    assert steps == [1, 2, 3]
    for study, path, row in zip(studies, paths, phantom_volume_rows(studies, tmp_path / "volumes"), strict=True):
        assert row == {**study.to_row(), "image": str(path)}
        expected = phantom_volume(study, (2, 3, 4), 16)
        with np.load(path) as archive:
            np.testing.assert_array_equal(archive["arr"], expected[None])
        np.testing.assert_array_equal(read_features(path, channels=16), expected)


def test_phantom_volume_two_studies_of_one_id_are_refused(tmp_path):
    with pytest.raises(ValueError, match="two studies have the id 'phantom-full-0-0'"):
        write_phantom_volumes(phantom_studies(1) * 2, tmp_path)
