"""What the commands compute, as functions: scores of tables, comparisons of systems, agreement, runs of judges.

The command line translates its options into settings and calls these functions; notebooks, recipes and benchmarks call
them directly. The names are imported at their first use, because the command line reads the settings for its help.
"""

from rrg_rewards.utilities.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
