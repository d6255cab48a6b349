"""The page of agreement with human judgements."""

import torch

from rrg_rewards.analysis.agreement import RatedRows
from rrg_rewards.pages import agreement_page


def test_agreement_page_draws_no_line_of_no_agreement_for_binary():
    entry = {"value": 0.8, "low": 0.7, "high": 0.9, "p_value": 0.01}
    agreement = {name: {"rouge": entry} for name in ("binary", "kendall")}
    group = {
        "human": {"rating": {"rows": 4, "agreement": agreement, "differences": []}},
    }
    result = {"groups": {"all": group}, "table": "t", "rows": 4, "signatures": {}, "seed": 0, "permutations": 9}
    result |= {"bootstrap": {"num_resamples": 9}, "lower_is_better": ["rating"]}
    # In the rows, higher is better; the page shows the ratings as they were given.
    rows = RatedRows({"rouge": torch.tensor([0.1, 0.2, 0.3, 0.4])}, {"rating": torch.tensor([-3.0, -2.0, -1.0, -0.0])})
    page = agreement_page(result, rows)
    (ratings,) = [column.cells for column in page.rows.columns if column.name == "rating"]
    assert list(map(str, ratings)) == ["3.0", "2.0", "1.0", "0.0"]
    drawn = "".join(page.sections["Agreement with rating"]).split("<figure>")
    assert ['class="zero"' in part for part in drawn[1:]] == [False, True]
    assert ["line: no agreement" in part for part in drawn[1:]] == [False, True]
