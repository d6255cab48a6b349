"""Neural networks in Hugging Face form.

Names are imported at their first use, for their modules need transformers. Importing a CT-CHAT name registers it with
transformers' auto classes.
"""

from typing import TYPE_CHECKING

from rrg_rewards.utilities.lazy import lazy_names

if TYPE_CHECKING:
    from rrg_rewards.models.crepe import CrepeConfig, CrepeModel, CrepeOutput
    from rrg_rewards.models.ct_chat import CTChatConfig, CTChatForConditionalGeneration, CTChatModel, CTChatProjector
    from rrg_rewards.models.ct_chat_processor import CTChatProcessor
    from rrg_rewards.models.er2score import ER2ScoreConfig, ER2ScoreModel, ER2ScoreOutput

_MODULES = {
    "CTChatConfig": "ct_chat",
    "CTChatForConditionalGeneration": "ct_chat",
    "CTChatModel": "ct_chat",
    "CTChatProcessor": "ct_chat",
    "CTChatProjector": "ct_chat",
    "CrepeConfig": "crepe",
    "CrepeModel": "crepe",
    "CrepeOutput": "crepe",
    "ER2ScoreConfig": "er2score",
    "ER2ScoreModel": "er2score",
    "ER2ScoreOutput": "er2score",
}

__all__ = [
    "CTChatConfig",
    "CTChatForConditionalGeneration",
    "CTChatModel",
    "CTChatProcessor",
    "CTChatProjector",
    "CrepeConfig",
    "CrepeModel",
    "CrepeOutput",
    "ER2ScoreConfig",
    "ER2ScoreModel",
    "ER2ScoreOutput",
]

__getattr__ = lazy_names(__name__, _MODULES)
