"""Judges of report pairs: rules, a language model behind a server, or a language model in this process.

Names are imported lazily because the judges need pydantic, and openai or transformers.
"""

from rrg_rewards.utilities.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
