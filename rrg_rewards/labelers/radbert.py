"""The published CT-RATE report classifier as a labeler."""

import hashlib
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rrg_rewards.findings.reading.modality import Modality
from rrg_rewards.models.loading import load_frozen
from rrg_rewards.models.state_dicts import check_state_dict, read_state_dict
from rrg_rewards.questions.schema import name_key
from rrg_rewards.schemas import get_label_schema
from rrg_rewards.utilities.backend import MODEL_REFUSAL, Backend
from rrg_rewards.utilities.checks import check_model_source, check_reports
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.precision import own_precision
from rrg_rewards.utilities.signature import format_signature

_ENCODER = "zzxslp/RadBERT-RoBERTa-4m"
_WEIGHT_FILES = ("model.safetensors", "RadBertClassifier.pth", "pytorch_model.bin")
# Names with these endings are files and never Hub ids, so that a mistyped path is not looked up on the Hub.
_FILE_ENDINGS = (".pth", ".pt", ".bin", ".safetensors")
_MAX_TOKENS = 512
# A buffer in checkpoints of old versions of transformers; new versions compute it.
_DERIVED_KEYS = frozenset({"model.embeddings.position_ids"})


@dataclass(frozen=True)
class _Source:
    """The weights file of a classifier, and the folder or Hub id of its configuration and tokenizer."""

    weights: Path
    encoder: str
    revision: str | None


class RadBertLabeler(Backend):
    """Label reports with the classifier that labeled CT-RATE.

    Reports are tokenised as they are and classified in batches of similar length. A label is positive if the sigmoid of
    its logit is at least 0.5. A blank report has no positive label and is not classified. The published code asks the
    tokenizer for lower case (``do_lower_case=True``), which that of RoBERTa ignores; the tokenizer decides here, too.

    Of a report with more than 512 tokens, ``"truncate"`` reads the first 512, as the published classifier does.
    ``"windows"`` reads overlapping windows that cover the report; a label is positive if it is positive in any window.
    CT reports have 275 words on average. Those that exceed the limit end with their impression, which ``"truncate"``
    does not read.

    The model is loaded when the first report is labeled, once per process for all labelers with the same weights
    (:func:`rrg_rewards.models.loading.load_frozen`). Reports are not sent anywhere. Weights load without executing
    pickled code.

    Source: Hamamci et al., CT-RATE, arXiv:2403.17834.

    Args:
        checkpoint: A state_dict file (``RadBertClassifier.pth``), or a folder or Hub id in Hugging Face format with
            weights, ``config.json`` and tokenizer.
        encoder: Folder or Hub id of the encoder's ``config.json`` and tokenizer. Required for a state_dict file.
        schema: Label schema of the classifier's outputs.
        long_reports: ``"truncate"`` or ``"windows"``.
        batch_size: Number of reports per batch.
        dtype: ``"float32"`` or ``"bfloat16"``.
        device: Device of the model. Default: the CUDA device of this process if there is one, else the CPU.
        revision: Revision of Hub ids.

    Raises:
        ValueError: If the schema, dtype or ``long_reports`` is unknown; on loading, if the weights do not fit.
        FileNotFoundError: On loading, if the file does not exist or the folder contains no known weight file.
    """

    modality: Modality = "ct"

    def __init__(
        self,
        checkpoint: str | Path,
        *,
        encoder: str | Path = _ENCODER,
        schema: str = "ct_rate",
        long_reports: Literal["truncate", "windows"] = "truncate",
        batch_size: int = 32,
        dtype: Literal["float32", "bfloat16"] = "float32",
        device: str | None = None,
        revision: str | None = None,
    ) -> None:
        if long_reports not in ("truncate", "windows"):
            raise ValueError(f"long_reports must be 'truncate' or 'windows', got {shown(long_reports)}")
        if dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype must be 'float32' or 'bfloat16', got {shown(dtype)}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be positive, got {batch_size}")
        self.checkpoint = str(checkpoint)
        self.encoder = str(encoder)
        self.schema = get_label_schema(schema)
        self.long_reports = long_reports
        self.batch_size = batch_size
        self.dtype = dtype
        self.device = device
        self.revision = revision

    @property
    def worker_refusal(self) -> str | None:
        """Why worker processes must not have a copy each: each would load the model."""
        return MODEL_REFUSAL

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this labeler."""
        return {
            "checkpoint": self.checkpoint,
            "encoder": self.encoder,
            "schema": self.schema.name,
            "long_reports": self.long_reports,
            "batch_size": self.batch_size,
            "dtype": self.dtype,
            "device": self.device,
            "revision": self.revision,
        }

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the columns of the label matrix."""
        return self.schema.labels

    @property
    def signature(self) -> str:
        """Checkpoint and settings; the weights are identified by the first digits of their SHA-256."""
        return format_signature(
            "radbert",
            checkpoint=f"{Path(self.checkpoint).name}@{self._weights_hash}",
            schema=self.schema.name,
            case="mixed",
            long_reports=self.long_reports,
            dtype=self.dtype,
        )

    @cached_property
    def _source(self) -> _Source:
        return _locate(self.checkpoint, self.encoder, self.revision)

    @cached_property
    def _weights_hash(self) -> str:
        weights = self._source.weights
        with weights.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return hashlib.sha256(content).hexdigest()[:8]

    @cached_property
    def _tokenizer(self) -> Any:
        transformers = require("transformers", extra="labelers")
        return transformers.AutoTokenizer.from_pretrained(
            self._source.encoder, revision=self._source.revision, do_lower_case=True, trust_remote_code=False
        )

    @cached_property
    def _model(self) -> nn.Module:
        dtype = getattr(torch, self.dtype)
        return load_frozen(_build, self._source, self.labels, dtype=dtype, device=self.device)

    def __call__(self, reports: Sequence[str]) -> Tensor:
        """Label reports.

        Args:
            reports: ``N`` report texts.

        Returns:
            Bool tensor ``(N, L)`` on the CPU.

        Raises:
            TypeError: If a report is not a string. The message names the row.
        """
        check_reports("reports", reports)
        labels = torch.zeros(len(reports), len(self.labels), dtype=torch.bool)
        rows = [row for row, report in enumerate(reports) if report.strip()]
        if not rows:
            return labels
        windows, owners = self._tokenize([reports[row] for row in rows])
        with own_precision():
            positive = self._run(windows)
        for window, owner in enumerate(owners):
            labels[rows[owner]] |= positive[window]
        return labels

    def _tokenize(self, reports: Sequence[str]) -> tuple[list[list[int]], list[int]]:
        encoded = self._tokenizer(
            list(reports),
            truncation=True,
            max_length=_MAX_TOKENS,
            stride=_MAX_TOKENS // 4 if self.long_reports == "windows" else 0,
            return_overflowing_tokens=self.long_reports == "windows",
        )
        owners = encoded.get("overflow_to_sample_mapping", range(len(reports)))
        return encoded["input_ids"], list(owners)

    @torch.inference_mode()
    def _run(self, windows: Sequence[list[int]]) -> Tensor:
        device = next(self._model.parameters()).device
        positive = torch.empty(len(windows), len(self.labels), dtype=torch.bool)
        by_length = sorted(range(len(windows)), key=lambda window: len(windows[window]))
        for start in range(0, len(by_length), self.batch_size):
            chosen = by_length[start : start + self.batch_size]
            batch = self._tokenizer.pad({"input_ids": [windows[window] for window in chosen]}, return_tensors="pt")
            logits = self._model(batch["input_ids"].to(device), batch["attention_mask"].to(device))
            positive[chosen] = (logits >= 0).cpu()
        return positive


def _build(source: _Source, labels: tuple[str, ...]) -> nn.Module:
    transformers = require("transformers", extra="labelers")
    config = transformers.AutoConfig.from_pretrained(source.encoder, revision=source.revision, trust_remote_code=False)
    _check_label_names(config, labels)
    return _load_classifier(source.weights, config, len(labels))


def _locate(checkpoint: str, encoder: str, revision: str | None) -> _Source:
    path = Path(checkpoint)
    if path.is_file():
        return _Source(path, encoder, revision)
    if path.suffix in _FILE_ENDINGS:
        raise FileNotFoundError(f"{checkpoint}: no such file")
    check_model_source(checkpoint, "checkpoint")
    if not path.is_dir():
        hub = require("huggingface_hub", extra="labelers")
        patterns = [*_WEIGHT_FILES, "*.json", "*.txt"]
        path = Path(hub.snapshot_download(checkpoint, revision=revision, allow_patterns=patterns))
    for name in _WEIGHT_FILES:
        if (path / name).is_file():
            return _Source(path / name, str(path) if (path / "config.json").is_file() else encoder, None)
    raise FileNotFoundError(f"{checkpoint} contains no weights; expected one of {', '.join(_WEIGHT_FILES)}")


def _check_label_names(config: Any, labels: tuple[str, ...]) -> None:
    """Check that the outputs of a classifier, if they are named, are the labels in their order."""
    # By number, because some configurations list "10" before "2".
    named = tuple(config.id2label[index] for index in range(len(config.id2label)))
    if all(name.startswith("LABEL_") for name in named) or [*map(name_key, named)] == [*map(name_key, labels)]:
        return
    raise ValueError(f"the checkpoint's labels are {', '.join(named)}; the schema's are {', '.join(labels)}")


class _Classifier(nn.Module):
    r"""Encoder with a linear multi-label head.

    .. math::
        z = W \, \mathrm{pool}(\mathrm{RadBERT}(x)) + b

    A label is positive if :math:`\sigma(z) \ge 0.5`. Parameters are named ``model.*`` and
    ``classifier.*``, as in the published checkpoint.

    Source: Hamamci et al., CT-RATE, arXiv:2403.17834 (text classifier); Yan et al., RadBERT, Radiology: AI 2022.
    """

    def __init__(self, config: Any, num_labels: int) -> None:
        super().__init__()
        transformers = require("transformers", extra="labelers")
        # The dtype of the configuration may have a lower precision than the weights.
        self.model = transformers.AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)
        self.classifier = nn.Linear(config.hidden_size, num_labels, dtype=torch.float32)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the logits ``(N, L)`` of token ids ``(N, T)``."""
        pooled = self.model(input_ids=input_ids, attention_mask=attention_mask).pooler_output
        logits: Tensor = self.classifier(pooled)
        return logits


def _load_classifier(weights: Path, config: Any, num_labels: int) -> nn.Module:
    """Load the classifier in float32 from weights in one of the published formats.

    These are a plain state_dict (``RadBertClassifier.pth``) or safetensors with the keys of :class:`_Classifier`, and
    safetensors of a Hugging Face sequence classifier.
    """
    state = read_state_dict(weights)
    if any(key.startswith("model.") for key in state):
        model: nn.Module = _Classifier(config, num_labels)
        state = {key: value for key, value in state.items() if key not in _DERIVED_KEYS}
    else:
        model = _SequenceClassifier(config, num_labels)
        state = {f"model.{key}": value for key, value in state.items() if not key.endswith(".position_ids")}
    check_state_dict(state, model.state_dict(), weights)
    model.load_state_dict(state)
    return model


class _SequenceClassifier(nn.Module):
    """A Hugging Face sequence classifier with the interface of :class:`_Classifier`."""

    def __init__(self, config: Any, num_labels: int) -> None:
        super().__init__()
        transformers = require("transformers", extra="labelers")
        config.num_labels = num_labels
        self.model = transformers.AutoModelForSequenceClassification.from_config(
            config, dtype=torch.float32, trust_remote_code=False
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
        return logits
