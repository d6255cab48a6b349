"""The page of a watch, and its history."""

import json

from rrg_rewards.pages import write_watch_page
from rrg_rewards.watch import RewardWatch


def test_write_watch_page_writes_the_page_and_the_history(watch_history, tmp_path):
    page = write_watch_page(watch_history, tmp_path).read_text()
    for alarm in watch_history["alarms"]:
        assert alarm["cause"] in page
        assert alarm["message"] in page
    for verdict in watch_history["verdicts"]:
        assert verdict["message"] in page
    assert page.count('<span class="tag invented">alarm</span>') == sum(
        one["fired"] for one in watch_history["verdicts"]
    )
    assert "128 reports in 16 blocks, to step 16." in page
    assert "words per report" in page
    assert "trained reward r" in page
    assert "held-out label_f1" in page
    words = next(part for part in page.split("<figure>") if "<figcaption>words per report" in part)
    assert words.count("dashed") == 2
    assert json.loads((tmp_path / "reward_watch.json").read_text())["alarms"] == watch_history["alarms"]


def test_write_watch_page_has_no_curve_of_a_watch_without_blocks(tmp_path):
    page = write_watch_page(RewardWatch(labeler=None).history(), tmp_path).read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reward_watch.html", "reward_watch.json"]
    assert "No alarm. 0 reports in 0 blocks, to step 0." in page
    assert "too few reports to compare" in page
    assert "<svg" not in page
