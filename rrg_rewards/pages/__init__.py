"""Static HTML pages of results: one file each, which opens offline and loads nothing."""

from rrg_rewards.pages.agreement_page import agreement_page
from rrg_rewards.pages.attack_page import attack_page
from rrg_rewards.pages.compare_page import compare_page
from rrg_rewards.pages.highlights import highlights
from rrg_rewards.pages.page import Column, Page, Pane, Rows, render_page, write_page
from rrg_rewards.pages.run_page import run_page
from rrg_rewards.pages.score_page import ScoreRows, score_page
from rrg_rewards.pages.watch_page import write_watch_page

__all__ = [
    "Column",
    "Page",
    "Pane",
    "Rows",
    "ScoreRows",
    "agreement_page",
    "attack_page",
    "compare_page",
    "highlights",
    "render_page",
    "run_page",
    "score_page",
    "write_page",
    "write_watch_page",
]
