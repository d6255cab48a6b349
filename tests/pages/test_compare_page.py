"""The page of a comparison."""

from rrg_rewards.analysis import compare_systems
from rrg_rewards.metrics import ROUGE
from rrg_rewards.pages import compare_page


def test_compare_page_has_a_section_for_each_group_of_each_column():
    systems = {"a": ["Normal."] * 4, "b": ["Effusion."] * 4}
    by = {"contrast": ["yes", "yes", "no", "no"], "portable": ["no", "yes", "yes", "no"]}
    few = {"num_resamples": 0, "num_permutations": 0}
    result = compare_systems(systems, ["Effusion."] * 4, [ROUGE()], by=by, **few)
    assert [name for name in compare_page(result, ["1", "2", "3", "4"]).sections if name.startswith("Group")] == [
        f"Group {column} {value}: 2 reports"
        for column, value in (("contrast", "yes"), ("contrast", "no"), ("portable", "no"), ("portable", "yes"))
    ]
