"""CREPE's configuration: that of its encoder, with a few fields more."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rrg_rewards.schemas import ERROR_CATEGORIES
from rrg_rewards.utilities.imports import require

# Before its names are imported: where it is missing, this says which extra installs it.
require("transformers", extra="models")

from transformers import AutoConfig, BertConfig, PretrainedConfig  # noqa: E402

__all__ = ["CrepeConfig"]

_OWN = ("num_error_categories", "error_categories", "use_presence_loss", "presence_loss_weight", "use_poisson_loss")
# What transformers writes of the model that is saved, not of the encoder in it.
_OF_THE_MODEL = ("architectures", "dtype", "transformers_version")


class CrepeConfig(PretrainedConfig):  # type: ignore[misc]
    """Configuration of :class:`CrepeModel`.

    It is written as the published checkpoint's is: the encoder's own ``config.json``, ``model_type`` included, with the
    fields below beside the encoder's. So what is saved here is read by the published code, and the other way round.

    Args:
        encoder_config: Configuration of the encoder (BERT or any other that ``AutoModel`` knows), or its dict, in
            which ``model_type`` is ``"bert"`` by default.
        error_categories: Names of the error categories. Default: the paper's six where there are six, else
            ``error_0`` and so on.
        num_error_categories: Number of categories; needed only where it is not 6 and they have no names.
        use_presence_loss: Whether there are heads that detect whether there is any error of a category.
        presence_loss_weight: Their share in the loss, in [0, 1]; see :func:`rrg_rewards.functional.crepe_loss`.
        use_poisson_loss: Whether counts are regressed by Poisson likelihood; the regression heads then give
            logarithms of counts.

    Raises:
        ValueError: If there is no category, names are not distinct or not as many as ``num_error_categories`` says, or
            the weight lies outside [0, 1].

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
        self.encoder_config = _encoder_config(encoder_config)
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
        size: int = self.encoder_config.hidden_size
        return size

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> "CrepeConfig":
        """Read a configuration from a folder or the Hub; see :meth:`from_dict`."""
        # Not the parent's, which warns of each encoder that its model_type is not "crepe".
        content, unused = cls.get_config_dict(pretrained_model_name_or_path, **kwargs)
        return cls.from_dict(content, **{key: value for key, value in unused.items() if key != "revision"})

    @classmethod
    def from_dict(cls, config_dict: Mapping[str, Any], **kwargs: Any) -> "CrepeConfig":
        """Make a configuration from that of an encoder with CREPE's fields beside its own.

        Args:
            config_dict: The content of a ``config.json``.
            kwargs: Values that replace what it holds.

        Raises:
            ValueError: If a field has no meaning; if it is of no CREPE model, for it names no number of categories.
        """
        content = {**config_dict, **kwargs}
        if "num_error_categories" not in content:
            raise ValueError(
                "the configuration has no num_error_categories, so it is of no CREPE model; to start training from "
                "a plain encoder use CrepeModel.from_encoder"
            )
        own = {key: content.pop(key) for key in _OWN if key in content}
        of_the_model = {key: content.pop(key) for key in _OF_THE_MODEL if key in content}
        return cls(encoder_config=content, **own, **of_the_model)

    def to_dict(self) -> dict[str, Any]:
        """The encoder's configuration with CREPE's fields beside its own."""
        own = {key: getattr(self, key) for key in _OWN}
        of_the_model = {key: value for key, value in super().to_dict().items() if key in _OF_THE_MODEL}
        return {
            **self.encoder_config.to_dict(),
            **own,
            "error_categories": list(self.error_categories),
            **of_the_model,
        }

    def to_diff_dict(self) -> dict[str, Any]:
        """What ``config.json`` holds: :meth:`to_dict` without the encoder's defaults."""
        content = self.to_dict()
        kept = {*self.encoder_config.to_diff_dict(), *_OWN, *_OF_THE_MODEL}
        return {key: value for key, value in content.items() if key in kept}


def _encoder_config(given: PretrainedConfig | Mapping[str, Any] | None) -> Any:
    if given is None:
        return BertConfig()
    return AutoConfig.for_model(**{"model_type": "bert", **given}) if isinstance(given, Mapping) else given


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
