"""ER²Score's configuration: the backbone, the scoring system that its heads follow, and the prompt."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from rrg_rewards.models.er2score_prompt import PromptTemplate, default_prompt
from rrg_rewards.schemas import ScoringSystem, get_scoring_system
from rrg_rewards.utilities.imports import require

# Before its names are imported: where it is missing, this says which extra installs it.
require("transformers", extra="models")

from transformers import AutoConfig, LlamaConfig, PretrainedConfig  # noqa: E402

__all__ = ["ER2ScoreConfig", "read_er2score_config", "read_scoring_system"]

_QUANTIZATIONS = (None, "4bit")


def read_scoring_system(given: str | Path | Mapping[str, Any] | ScoringSystem) -> ScoringSystem:
    """A scoring system by its name, its YAML file, its plain data or itself.

    Raises:
        ValueError: If there is no such system, or it is not valid.
        FileNotFoundError: If there is no such file.

    Example:
        >>> read_scoring_system("radcliq").names[0]
        'false_finding'
    """
    if isinstance(given, ScoringSystem):
        return given
    return ScoringSystem.from_dict(given) if isinstance(given, Mapping) else get_scoring_system(given)


class ER2ScoreConfig(PretrainedConfig):  # type: ignore[misc]
    """Configuration of :class:`ER2ScoreModel`: all that a saved model needs to be told, but for its weights.

    Args:
        backbone_config: Configuration of the decoder, or its dict, in which ``model_type`` is ``"llama"`` by default.
        scoring_system: The scoring system by whose criteria the rewards are: a name, a YAML file, plain data or a
            :class:`rrg_rewards.schemas.ScoringSystem`.
        prompt: Text of the template (:class:`rrg_rewards.models.er2score_prompt.PromptTemplate`); default: the
            package's.
        backbone: Folder or Hub id that the backbone's weights are from; an adapter is loaded on it.
        backbone_revision: Revision of a Hub id.
        num_layers: Decoder layers that were kept of the backbone; ``None`` for all.
        max_prompt_length: Tokens of a prompt at most, reports included.
        lora: Fields of PEFT's ``LoraConfig``; ``None`` where all weights are trained.
        quantization: ``"4bit"`` where the backbone's weights are quantised under the adapter (QLoRA).

    Raises:
        ValueError: If the scoring system or the prompt is not valid, a number is not positive, or 4-bit weights come
            without an adapter, for they cannot be trained.

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
        self.backbone_config = _backbone_config(backbone_config)
        self.scoring_system = read_scoring_system(scoring_system).to_dict()
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
            raise ValueError("4-bit weights cannot be trained: with quantization='4bit' give lora, as lora={'r': 16}")
        super().__init__(**kwargs)

    @property
    def system(self) -> ScoringSystem:
        """The scoring system."""
        return ScoringSystem.from_dict(self.scoring_system)

    @property
    def num_criteria(self) -> int:
        """Number of criteria, hence of rewards."""
        return len(self.scoring_system["criteria"])

    @property
    def hidden_size(self) -> int:
        """Width of the backbone."""
        size: int = self.backbone_config.hidden_size
        return size


def _backbone_config(given: PretrainedConfig | Mapping[str, Any] | None) -> Any:
    if given is None:
        return LlamaConfig()
    return AutoConfig.for_model(**{"model_type": "llama", **given}) if isinstance(given, Mapping) else given


def read_er2score_config(folder: Path) -> ER2ScoreConfig:
    """The configuration of a saved model.

    Raises:
        ValueError: If it is of another kind of model, or not valid.
    """
    content, _ = ER2ScoreConfig.get_config_dict(folder)
    if content.get("model_type") != ER2ScoreConfig.model_type:
        raise ValueError(f"{folder} is of type {content.get('model_type')}, which is no ER2Score model")
    config: ER2ScoreConfig = ER2ScoreConfig.from_dict(content)
    return config
