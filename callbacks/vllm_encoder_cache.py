"""Reset of vLLM's encoder cache after weight updates, for the online trainers of TRL."""

from collections.abc import Callable
from functools import partial
from typing import Any

from rrg_rewards.utilities.imports import require

# Check first: the error message names the extra that installs transformers.
require("transformers", extra="trl")

from transformers import TrainerCallback  # noqa: E402

__all__ = ["ResetVLLMEncoderCache"]


class ResetVLLMEncoderCache(TrainerCallback):  # type: ignore[misc]  # transformers is optional
    """Resets vLLM's encoder cache whenever a TRL trainer pushes weights to the engine.

    vLLM keeps the outputs of the vision encoder and the projector by image until it needs their place. TRL resets only
    the prefix cache when it pushes new weights. If the vision part of the model is trained and an image recurs, vLLM
    therefore samples with outputs of earlier weights: the samples no longer follow the trained policy, and nothing
    warns. This callback resets the cache after each push, also before evaluations. It is not needed if the vision part
    is frozen.

    The multi-modal cache is not reset, because it contains the inputs of the encoder, which do not depend on weights.

    The recipes add the callback if ``use_vllm`` is set. In server mode, the main process calls the server's
    ``/reset_encoder_cache``, which exists if the server was started with ``VLLM_SERVER_DEV_MODE=1``, as TRL requires.

    Args:
        trainer: A trainer that generates with vLLM: ``GRPOTrainer`` or ``RLOOTrainer`` with ``use_vllm=True``, or
            another trainer with the attribute ``vllm_generation``.

    Raises:
        ValueError: If the trainer does not generate with vLLM.

    Example:
        >>> from types import SimpleNamespace
        >>> from rrg_rewards.callbacks import ResetVLLMEncoderCache
        >>> # trainer = GRPOTrainer(..., args=GRPOConfig(use_vllm=True, vllm_mode="colocate"))
        >>> trainer = SimpleNamespace(vllm_generation=SimpleNamespace(mode="colocate"))
        >>> callback = ResetVLLMEncoderCache(trainer)
        >>> # trainer.add_callback(callback)
    """

    def __init__(self, trainer: Any) -> None:
        generation = getattr(trainer, "vllm_generation", None)
        if generation is None:
            raise ValueError(
                f"{type(trainer).__name__} does not generate with vLLM; set use_vllm=True in its arguments"
            )
        self._generation = generation

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Reset the cache after each push of weights from now on."""
        push = self._generation.sync_weights
        # A trainer can train several times.
        if not (isinstance(push, partial) and push.func is _push_and_reset):
            self._generation.sync_weights = partial(_push_and_reset, push, self._generation)


def _push_and_reset(push: Callable[[], None], generation: Any) -> None:
    push()
    if generation.mode == "colocate":
        generation.llm.llm_engine.reset_encoder_cache()
    elif generation.accelerator.is_main_process:
        _reset_on_server(generation.vllm_client)


def _reset_on_server(client: Any) -> None:
    url = f"{client.base_url}/reset_encoder_cache"
    response = client.session.post(url)
    if response.status_code != 200:
        raise RuntimeError(
            f"{url} answered {response.status_code}; start the server with VLLM_SERVER_DEV_MODE=1 and a version of "
            "vLLM that has this endpoint, or freeze the vision part of the model and remove ResetVLLMEncoderCache"
        )
