"""ER²Score's configuration: backbone, scoring system and prompt."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from rrg_rewards.models.er2score.prompt import PromptTemplate, default_prompt
from rrg_rewards.schemas import ScoringSystem, get_scoring_system
from rrg_rewards.utilities.imports import require

# First, so that the error for a missing package names the extra that installs it.
require("transformers", extra="models")

from transformers import AutoConfig, PretrainedConfig  # noqa: E402

_QUANTIZATIONS = (None, "4bit")


class ER2ScoreConfig(PretrainedConfig):  # type: ignore[misc]
    """Configuration of :class:`ER2ScoreModel`: everything that a saved model contains except its weights.

    Args:
        backbone_config: Configuration of the decoder, or its dict, in which ``model_type`` defaults to ``"llama"``.
        scoring_system: The scoring system, with one reward per criterion: a name, a YAML file, plain data or a
            :class:`rrg_rewards.schemas.ScoringSystem`.
        prompt: Text of the template (:class:`rrg_rewards.models.er2score.prompt.PromptTemplate`); default: the
            package's.
        backbone: Folder or Hub id of the backbone's weights, to which an adapter is added.
        backbone_revision: Revision of a Hub id.
        num_layers: Number of decoder layers kept from the backbone; ``None`` for all.
        max_prompt_length: Maximum number of tokens of a prompt, reports included.
        lora: Fields of PEFT's ``LoraConfig``; ``None`` if all weights are trained.
        quantization: ``"4bit"`` if the backbone's weights are quantised under the adapter (QLoRA).

    Raises:
        ValueError: If the scoring system or the prompt is invalid, a number is not positive, or ``quantization`` is set
            without ``lora``.

    Example:
        >>> config = ER2ScoreConfig({"hidden_size": 8, "num_attention_heads": 2}, "mrscore")
        >>> config.system.names[0], config.num_criteria
        ('impression_consistency', 7)
        >>> ER2ScoreConfig.from_dict(config.to_dict()).system == config.system
        True
    """

    model_type = "er2score"
    sub_configs: ClassVar[dict[str, Any]] = {"backbone_config": AutoConfig}

    def __init__(
        self,
        backbone_config: PretrainedConfig | Mapping[str, Any] | None = None,
        scoring_system: str | Path | Mapping[str, Any] | ScoringSystem = "radcliq",
        prompt: str | None = None,
        backbone: str | None = None,
        backbone_revision: str | None = None,
        num_layers: int | None = None,
        max_prompt_length: int = 2048,
        lora: Mapping[str, Any] | None = None,
        quantization: str | None = None,
        **kwargs: Any,
    ) -> None:
        if backbone_config is None or isinstance(backbone_config, Mapping):
            backbone_config = AutoConfig.for_model(**{"model_type": "llama", **(backbone_config or {})})
        self.backbone_config: Any = backbone_config
        if isinstance(scoring_system, Mapping):
            scoring_system = ScoringSystem.from_dict(scoring_system)
        self.scoring_system = get_scoring_system(scoring_system).to_dict()
        self.prompt = PromptTemplate(default_prompt() if prompt is None else prompt).text
        self.backbone = backbone
        self.backbone_revision = backbone_revision
        self.num_layers = num_layers
        self.max_prompt_length = max_prompt_length
        self.lora = None if lora is None else dict(lora)
        self.quantization = quantization
        for name in ("num_layers", "max_prompt_length"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be positive, got {value}")
        if quantization not in _QUANTIZATIONS:
            raise ValueError(f"quantization must be '4bit' or None, got {quantization!r}")
        if quantization is not None and lora is None:
            raise ValueError(
                "4-bit weights cannot be trained: with quantization='4bit' give lora, such as lora={'r': 16}"
            )
        super().__init__(**kwargs)

    @property
    def system(self) -> ScoringSystem:
        """The scoring system."""
        return ScoringSystem.from_dict(self.scoring_system)

    @property
    def num_criteria(self) -> int:
        """Number of criteria, which is the number of rewards."""
        return len(self.scoring_system["criteria"])

    @property
    def hidden_size(self) -> int:
        """Width of the backbone."""
        return int(self.backbone_config.hidden_size)


def read_er2score_config(folder: Path) -> ER2ScoreConfig:
    """Read the configuration of a saved model.

    Raises:
        ValueError: If it is invalid, or belongs to another kind of model.
    """
    content, _ = ER2ScoreConfig.get_config_dict(folder)
    if content.get("model_type") != ER2ScoreConfig.model_type:
        raise ValueError(f"{folder} is of type {content.get('model_type')}, which is not an ER2Score model")
    return ER2ScoreConfig.from_dict(content)  # type: ignore[no-any-return]
