"""The plugin that makes CT-CHAT known to vLLM."""

from rrg_rewards.utilities.imports import require

_ARCHITECTURE = "CTChatForConditionalGeneration"


def register() -> None:
    """Register CT-CHAT with vLLM. vLLM calls the function in each of its processes, because it is an entry point.

    Afterwards ``vllm.LLM(folder)`` loads a folder that ``CTChatForConditionalGeneration.save_pretrained`` and
    ``CTChatProcessor.save_pretrained`` wrote.

    Raises:
        ImportError: If vLLM is not installed.
    """
    vllm = require("vllm", extra="vllm")
    # Registers the configuration with transformers.
    import rrg_rewards.models.ct_chat.model  # noqa: F401

    # By name, so that vLLM imports the module after it has chosen the device.
    vllm.ModelRegistry.register_model(_ARCHITECTURE, f"rrg_rewards.integrations.vllm.model:{_ARCHITECTURE}")
