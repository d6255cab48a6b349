"""The page of a comparison."""

import re

from rrg_rewards.analysis import compare_systems
from rrg_rewards.metrics import ROUGE
from rrg_rewards.pages import compare_page


def test_compare_page_has_a_section_for_each_group_of_each_column():
    systems = {"a": ["Normal."] * 4, "b": ["Effusion."] * 4}
    by = {"contrast": ["yes", "yes", "no", "no"], "portable": ["no", "yes", "yes", "no"]}
    few = {"num_resamples": 9, "num_permutations": 9}
    references = ["Effusion.", "Effusion.", "Normal.", "Effusion. Hernia."]
    result = compare_systems(systems, references, [ROUGE()], by=by, **few)
    sections = compare_page(result, ["1", "2", "3", "4"]).sections
    assert [name for name in sections if name.startswith("Group")] == [
        f"Group {column} {value}: 2 reports"
        for column, value in (("contrast", "yes"), ("contrast", "no"), ("portable", "no"), ("portable", "yes"))
    ]
    # The intervals of a metric have one axis, although the groups have other differences.
    charts = ["".join(section) for name, section in sections.items() if name.startswith(("Group", "All"))]
    assert len({tuple(re.findall(r">(-?[\d.]+)</text>", chart)) for chart in charts}) == 1
