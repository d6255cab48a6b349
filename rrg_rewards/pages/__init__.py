"""Static HTML pages of results: one file each, which opens offline and loads nothing."""

from rrg_rewards.pages.highlights import highlights
from rrg_rewards.pages.page import Column, Page, Pane, Rows, render_page, write_page
from rrg_rewards.pages.score_page import score_page
from rrg_rewards.pages.score_rows import ScoreRows

__all__ = [
    "Column",
    "Page",
    "Pane",
    "Rows",
    "ScoreRows",
    "highlights",
    "render_page",
    "score_page",
    "write_page",
]
