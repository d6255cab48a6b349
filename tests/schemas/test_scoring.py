"""Scoring systems: what their totals are, and what is wrong with one that is wrong."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.data import read_graded_reports
from rrg_rewards.schemas import ERROR_CATEGORIES, Criterion, ScoringSystem, get_scoring_system
from rrg_rewards.schemas.scoring import scoring_system_names

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training_metrics.md"
OWN = """\
name: short
base: 10
direction: deduct
total_range: [0, 10]
criteria:
  - name: devices
    description: Is a device missing or misplaced?
    kind: yes_no
    weight: 4
  - name: lesions
    description: How many lesions are missing or false?
    kind: count
    weight: 2
    range: [0, 2]
    errors: [false_finding, omitted_finding]
  - name: wording
    description: How badly is it worded, from 0 to 2?
    kind: grade
    range: [0, 2]
"""


def criterion(**changed):
    return Criterion(**{"name": "grammar", "description": "Any errors of grammar?", "kind": "yes_no", **changed})


def system(*criteria, **changed):
    return ScoringSystem(**{"name": "short", "criteria": criteria or (criterion(),), **changed})


class TestShippedScoringSystems:
    def test_radcliq_is_the_number_of_errors_of_six_categories(self):
        radcliq = get_scoring_system("radcliq")
        assert radcliq.names == ERROR_CATEGORIES
        assert [c.errors for c in radcliq.criteria] == [(name,) for name in ERROR_CATEGORIES]
        assert radcliq.factors == (-1.0,) * 6
        assert radcliq.total([1, 2, 0, 0, 3, 0]) == -6
        assert radcliq.total([0] * 6) == 0
        assert radcliq.bounds == (-math.inf, 0)

    def test_mrscore_is_the_papers(self):
        mrscore = get_scoring_system("mrscore")
        assert [c.weight for c in mrscore.criteria] == [30, 20, 20, 10, 10, 5, 5]
        assert {c.kind for c in mrscore.criteria} == {"yes_no"}
        # 100 - (30 + 20 + 5), by hand.
        assert mrscore.total([1, 0, 1, 0, 0, 1, 0]) == 45
        assert mrscore.total([0] * 7) == 100
        assert mrscore.total([1] * 7) == 0
        assert mrscore.bounds == (0, 100)
        # Two of three raters see another conclusion.
        assert mrscore.total([2 / 3, 0, 0, 0, 0, 0, 0]) == pytest.approx(80)

    @pytest.mark.parametrize("name", scoring_system_names())
    def test_every_one_survives_json_and_yaml(self, name):
        shipped = get_scoring_system(name)
        assert shipped.name == name
        text = json.dumps(shipped.to_dict(), allow_nan=False)
        assert ScoringSystem.from_dict(json.loads(text)) == shipped
        assert ScoringSystem.from_dict(yaml.safe_load(yaml.safe_dump(shipped.to_dict()))) == shipped
        assert all(c.description.endswith((".", "?")) for c in shipped.criteria)


class TestOwnScoringSystems:
    def test_from_a_file(self, tmp_path):
        (tmp_path / "own.YAML").write_text(OWN, encoding="utf-8")
        own = get_scoring_system(tmp_path / "own.YAML")
        assert own == get_scoring_system(str(tmp_path / "own.YAML"))
        assert get_scoring_system(own) is own
        assert own.names == ("devices", "lesions", "wording")
        assert own.contributions([1, 2, 0.5]) == (-4, -4, -0.5)
        assert own.total([1, 2, 0.5]) == 1.5
        assert ScoringSystem.from_dict(json.loads(json.dumps(own.to_dict()))) == own

    def test_marks_are_added(self):
        marks = system(
            criterion(name="clarity", kind="grade", range=(-1, 5), weight=2),
            base=1,
            direction="add",
            total_range=(-1, 11),
        )
        assert marks.factors == (2,)
        assert marks.total([3]) == 7
        assert marks.contributions([-1]) == (-2,)

    def test_whole_and_broken_numbers_make_one_system(self):
        whole = system(criterion(weight=30), base=100, total_range=[70, 100])
        broken = system(criterion(weight=30.0), base=100.0, total_range=(70.0, 100.0))
        assert json.dumps(whole.to_dict()) == json.dumps(broken.to_dict())

    def test_the_one_of_the_documentation(self, tmp_path):
        system_text, reports = (
            re.search(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
            for kind in ("yaml", "jsonl")
        )
        (tmp_path / "chest_drain.yaml").write_text(system_text, encoding="utf-8")
        (tmp_path / "graded.jsonl").write_text(reports, encoding="utf-8")
        read = read_graded_reports(tmp_path / "graded.jsonl", tmp_path / "chest_drain.yaml")
        assert [report.scores for report in read] == [(1, 0, 0), (0, 2, None)]

    def test_numbers_of_numpy_are_numbers(self):
        assert get_scoring_system("radcliq").total(np.array([1, 0, 2, 0, 0, 0])) == -3
        assert get_scoring_system("radcliq").total(np.ones(6, dtype=np.float32)) == -6

    def test_a_total_of_some_lies_between_bounds(self):
        mrscore = get_scoring_system("mrscore")
        assert mrscore.total_bounds([None] * 7) == mrscore.bounds
        assert mrscore.total_bounds([1, None, 0, 0, 0, 0, 0]) == (50, 70)
        assert get_scoring_system("radcliq").total_bounds([2, None, 0, 0, 0, 0]) == (-math.inf, -2)

    @given(st.data())
    def test_totals_lie_within_bounds_and_are_the_sum_of_contributions(self, data):
        weights = data.draw(st.lists(st.floats(0.01, 100), min_size=1, max_size=5))
        made = system(
            *(criterion(name=f"c{i}", kind="grade", range=(-1, 3), weight=weight) for i, weight in enumerate(weights)),
            base=data.draw(st.floats(-100, 100)),
            direction=data.draw(st.sampled_from(["add", "deduct"])),
        )
        scores = [data.draw(st.floats(-1, 3)) for _ in weights]
        total, (low, high) = made.total(scores), made.bounds
        assert low - 1e-9 <= total <= high + 1e-9
        assert total == pytest.approx(made.base + math.fsum(made.contributions(scores)), abs=1e-9)
        assert made.total_bounds(scores) == pytest.approx((total, total), abs=1e-9)
        assert ScoringSystem.from_dict(json.loads(json.dumps(made.to_dict()))) == made


class TestBadCriteria:
    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            *(({"name": name}, "name must be lower case") for name in ("two words", "Grammar", "", "1st", "total", 3)),
            ({"description": " "}, "description must be a non-empty text"),
            ({"description": None}, "description must be a non-empty text"),
            ({"kind": "counts"}, "unknown kind 'counts'; did you mean 'count'"),
            *(
                ({"weight": weight}, "weight must be positive and finite")
                for weight in (0, -1, math.inf, math.nan, "5", True, None)
            ),
            ({"kind": "grade"}, r"a grade needs its range, as in range: \[0, 10\]"),
            ({"kind": "grade", "range": [5, 5]}, r"range must be finite and ascending, got \[5, 5\]"),
            ({"kind": "grade", "range": [5, 1]}, r"range must be finite and ascending, got \[5, 1\]"),
            ({"kind": "grade", "range": [0, math.inf]}, "range must be finite and ascending"),
            ({"kind": "grade", "range": [0, math.nan]}, "range must be two numbers"),
            ({"kind": "grade", "range": [0, 1, 2]}, "range must be two numbers"),
            ({"kind": "grade", "range": 5}, "range must be two numbers, got 5"),
            ({"kind": "grade", "range": "05"}, "range must be two numbers, got '05'"),
            ({"kind": "count", "range": [1, 5]}, "a count starts at 0"),
            ({"kind": "yes_no", "range": [0, 2]}, "a yes_no starts at 0 and ends at 1"),
            ({"errors": "false_finding"}, "errors must be a list of false_finding, .* got 'false_finding'"),
            ({"errors": ["false_findings"]}, "errors must be a list of"),
            ({"errors": None}, "errors must be a list of .* got None"),
        ],
    )
    def test_are_refused_by_name(self, changed, message):
        with pytest.raises(ValueError, match=message) as caught:
            criterion(**changed)
        assert str(caught.value).startswith(f"criterion {changed.get('name', 'grammar')!r}: ")

    @pytest.mark.parametrize(
        ("kind", "score", "message"),
        [
            ("yes_no", 1.01, r"grammar must lie in \[0, 1\], got 1\.01"),
            ("yes_no", -0.5, r"grammar must lie in \[0, 1\], got -0\.5"),
            ("count", -1, r"grammar must lie in \[0, inf\], got -1"),
            ("count", math.inf, r"grammar must lie in \[0, inf\], got inf"),
            ("count", math.nan, r"grammar must be a number in \[0, inf\], got nan"),
            # Never the text: it may be a report's.
            ("count", "effusion", r"grammar must be a number in \[0, inf\], got str"),
            ("yes_no", True, r"grammar must be a number in \[0, 1\], got bool"),
        ],
    )
    def test_scores_out_of_range_are_refused(self, kind, score, message):
        with pytest.raises(ValueError, match=f"^{message}$"):
            criterion(kind=kind).check(score)


class TestBadScoringSystems:
    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"name": " "}, "name must be a non-empty text"),
            ({"name": True}, "name must be a non-empty text"),
            ({"criteria": ()}, "has no criteria"),
            ({"criteria": (criterion(), criterion())}, "two criteria are called 'grammar'"),
            ({"direction": "subtract"}, "direction must be deduct or add, got 'subtract'"),
            ({"base": math.inf}, "base must be a finite number, got inf"),
            ({"base": "100"}, "base must be a finite number, got '100'"),
            ({"total_range": (0, 1)}, r"does not add up: .* totals in \[-1, 0\], but total_range is \[0, 1\]"),
            ({"base": 100, "total_range": (0, 100)}, r"does not add up: base 100 .* in \[99, 100\], .* \[0, 100\]"),
            ({"total_range": 5}, "total_range must be two numbers, got 5"),
            ({"total_range": (0,)}, "total_range must be two numbers"),
            ({"criteria": (criterion(kind="count"),), "total_range": (-10, 0)}, "give counts a range"),
            ({"criteria": (criterion(kind="count"),), "total_range": (-math.inf, 0)}, "give counts a range"),
        ],
    )
    def test_are_refused(self, changed, message):
        with pytest.raises(ValueError, match=message):
            system(**changed)

    def test_a_wrong_number_of_scores_is_told(self):
        radcliq = get_scoring_system("radcliq")
        for use in (radcliq.total, radcliq.contributions, radcliq.total_bounds):
            with pytest.raises(ValueError, match="radcliq has 6 criteria, got 2 sub-scores"):
                use([1, 2])
        with pytest.raises(ValueError, match="wrong_location must lie in"):
            radcliq.total([0, None, -1, 0, 0, 0])
        assert math.isnan(radcliq.total([0, None, 1, 0, 0, 0]))


class TestBadScoringSystemFiles:
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("weight: 4", "weight: 5", r"does not add up: .* \[-1, 10\], but total_range is \[0, 10\]"),
            ("    weight: 4\n", "", r"does not add up: .* \[3, 10\]"),
            ("name: lesions", "name: devices", "two criteria are called 'devices'"),
            ("direction", "directions", "unknown key 'directions'; did you mean 'direction'"),
            ("    weight: 2", "    wieght: 2", "criterion 2: unknown key 'wieght'; did you mean 'weight'"),
            ("weight: 2", "weight: 2\n    weight: 3", "line 14: the key 'weight' is repeated"),
            ("name: short\n", "", "scoring system: lacks name"),
            ("    kind: grade\n", "", "criterion 3: lacks kind"),
            ("criteria:", "criteria: none\nx:", "needs criteria, a list"),
            ("kind: count", "kind: [count]", "unknown kind"),
            ("kind: count", "kind: {", "while parsing"),
            ("range: [0, 2]\n    errors", "range: [0, .inf]\n    errors", "give counts a range"),
        ],
    )
    def test_are_refused_by_path(self, tmp_path, old, new, message):
        path = tmp_path / "own.yaml"
        assert old in OWN
        path.write_text(OWN.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(ValueError, match=message) as caught:
            get_scoring_system(path)
        assert str(caught.value).startswith(f"{path}: ")

    @pytest.mark.parametrize("content", [b"", b"- 1", b"radcliq", b"\xff\xfe\x00", b"criteria: [3]"])
    def test_what_is_no_system_is_refused(self, tmp_path, content):
        (tmp_path / "own.yml").write_bytes(content)
        with pytest.raises(ValueError, match=r"own\.yml: "):
            get_scoring_system(tmp_path / "own.yml")

    def test_unknown_names_and_files_are_told(self, tmp_path):
        with pytest.raises(ValueError, match=r"did you mean 'mrscore'\? Known: mrscore, radcliq; or a \.yaml file"):
            get_scoring_system("mr_score")
        with pytest.raises(FileNotFoundError, match="nowhere"):
            get_scoring_system(tmp_path / "nowhere.yaml")

    def test_anchors_and_merges_are_yaml_too(self, tmp_path):
        (tmp_path / "own.yaml").write_text(
            "name: own\ncriteria:\n  - &one {name: one, description: One., kind: yes_no, weight: 3}\n"
            "  - {<<: *one, name: two}\n"
        )
        assert [c.weight for c in get_scoring_system(tmp_path / "own.yaml").criteria] == [3, 3]
