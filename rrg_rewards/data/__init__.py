"""Readers, report pairs and the phantom corpus."""

from rrg_rewards.data.phantom import (
    PhantomContext,
    PhantomFinding,
    PhantomStudy,
    phantom_rows,
    phantom_studies,
    phantom_vocabulary,
)

__all__ = [
    "PhantomContext",
    "PhantomFinding",
    "PhantomStudy",
    "phantom_rows",
    "phantom_studies",
    "phantom_vocabulary",
]
