"""CREPE's configuration: the configuration of its encoder with further fields."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rrg_rewards.schemas import ERROR_CATEGORIES
from rrg_rewards.utilities.imports import require

# First, so that the error for a missing package names the extra that installs it.
require("transformers", extra="models")

from transformers import AutoConfig, PretrainedConfig  # noqa: E402

_OWN = ("num_error_categories", "error_categories", "use_presence_loss", "presence_loss_weight", "use_poisson_loss")
# Fields that transformers writes about the saved model, not about its encoder.
_OF_THE_MODEL = ("architectures", "dtype", "transformers_version")


class CrepeConfig(PretrainedConfig):  # type: ignore[misc]
    """Configuration of :class:`CrepeModel`.

    It is saved in the layout of the published checkpoint: the encoder's ``config.json``, including its ``model_type``,
    with the fields below added. The published code can read models saved here, and vice versa.

    Args:
        encoder_config: Configuration of the encoder (BERT or any other that ``AutoModel`` supports), or its dict, in
            which ``model_type`` defaults to ``"bert"``.
        error_categories: Names of the error categories. Default: the six of the paper if there are six, else
            ``error_0`` and so on.
        num_error_categories: Number of categories; needed only if it is not 6 and there are no names.
        use_presence_loss: Whether additional heads detect the presence of any error of a category.
        presence_loss_weight: Weight of the presence loss, in [0, 1]; see :func:`rrg_rewards.functional.crepe_loss`.
        use_poisson_loss: Whether the regression of counts uses a Poisson likelihood; counts are then the softplus of
            the heads' outputs.

    Raises:
        ValueError: If there is no category, names are repeated or their number is not ``num_error_categories``, or the
            weight is outside [0, 1].

    Example:
        >>> config = CrepeConfig({"model_type": "bert", "hidden_size": 8}, error_categories=["missed", "invented"])
        >>> config.num_error_categories, config.hidden_size
        (2, 8)
        >>> CrepeConfig.from_dict(config.to_dict()).error_categories
        ('missed', 'invented')
    """

    model_type = "crepe"
    sub_configs: ClassVar[dict[str, Any]] = {"encoder_config": AutoConfig}

    def __init__(
        self,
        encoder_config: PretrainedConfig | Mapping[str, Any] | None = None,
        error_categories: Sequence[str] | None = None,
        num_error_categories: int | None = None,
        use_presence_loss: bool = True,
        presence_loss_weight: float = 0.5,
        use_poisson_loss: bool = False,
        **kwargs: Any,
    ) -> None:
        if encoder_config is None or isinstance(encoder_config, Mapping):
            encoder_config = AutoConfig.for_model(**{"model_type": "bert", **(encoder_config or {})})
        self.encoder_config: Any = encoder_config
        self.error_categories = _categories(error_categories, num_error_categories)
        self.num_error_categories = len(self.error_categories)
        self.use_presence_loss = use_presence_loss
        self.presence_loss_weight = presence_loss_weight
        self.use_poisson_loss = use_poisson_loss
        if not 0 <= presence_loss_weight <= 1:
            raise ValueError(f"presence_loss_weight must lie in [0, 1], got {presence_loss_weight}")
        super().__init__(**kwargs)

    @property
    def hidden_size(self) -> int:
        """Width of the encoder."""
        return int(self.encoder_config.hidden_size)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> "CrepeConfig":
        """Read a configuration from a folder or the Hub; see :meth:`from_dict`."""
        # The parent's method would warn that the model_type is not "crepe".
        content, unused = cls.get_config_dict(pretrained_model_name_or_path, **kwargs)
        return cls.from_dict(content, **{key: value for key, value in unused.items() if key != "revision"})

    @classmethod
    def from_dict(cls, config_dict: Mapping[str, Any], **kwargs: Any) -> "CrepeConfig":
        """Make a configuration from the configuration of an encoder with CREPE's fields added.

        Args:
            config_dict: The content of a ``config.json``.
            kwargs: Fields with new values.

        Raises:
            ValueError: If a field is invalid, or ``num_error_categories`` is missing, as in the configuration of an
                encoder.
        """
        content = {**config_dict, **kwargs}
        if "num_error_categories" not in content:
            raise ValueError(
                "the configuration has no num_error_categories, so it is not that of a CREPE model; to start training "
                "from a plain encoder use CrepeModel.from_encoder"
            )
        own = {key: content.pop(key) for key in _OWN if key in content}
        of_the_model = {key: content.pop(key) for key in _OF_THE_MODEL if key in content}
        return cls(encoder_config=content, **own, **of_the_model)

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration of the encoder with CREPE's fields added."""
        own = {key: getattr(self, key) for key in _OWN}
        of_the_model = {key: value for key, value in super().to_dict().items() if key in _OF_THE_MODEL}
        return {
            **self.encoder_config.to_dict(),
            **own,
            "error_categories": list(self.error_categories),
            **of_the_model,
        }

    def to_diff_dict(self) -> dict[str, Any]:
        """Return the content of ``config.json``: :meth:`to_dict` without the encoder's defaults."""
        content = self.to_dict()
        kept = {*self.encoder_config.to_diff_dict(), *_OWN, *_OF_THE_MODEL}
        return {key: value for key, value in content.items() if key in kept}


def _categories(names: Sequence[str] | None, number: int | None) -> tuple[str, ...]:
    if names is None:
        number = len(ERROR_CATEGORIES) if number is None else number
        own = tuple(f"error_{index}" for index in range(number))
        names = ERROR_CATEGORIES if number == len(ERROR_CATEGORIES) else own
    elif isinstance(names, str):
        raise ValueError(f"error_categories must be a list of names, got one string; pass [{names!r}]")
    if number is not None and number != len(names):
        raise ValueError(f"num_error_categories is {number}, but error_categories has {len(names)} names")
    if not names or len(set(names)) != len(names):
        raise ValueError(f"error_categories must be distinct names, at least one, got {list(names)}")
    return tuple(names)
