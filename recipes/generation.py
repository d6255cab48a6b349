"""Reports for the rows of a table, by transformers or vLLM. The command line reads the settings for its help."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError, Settings, setting
from rrg_rewards.version import __version__

if TYPE_CHECKING:
    from rrg_rewards.data.tables.appending import AppendedLines
    from rrg_rewards.data.tables.table import Table

RUN_NAME = "run.json"
"""File that recipes write beside a model. Its ``config`` contains the settings of the prompts."""

_PROMPT_SETTINGS = ("input_column", "prompt_template", "system_prompt", "image_column", "conversational")

# vLLM starts a report as soon as another one ends, so that more of them at a time are faster.
_BATCH_SIZES = {"transformers": 8, "vllm": 256}


@dataclass(frozen=True, kw_only=True)
class GenerationSettings(Settings):
    """How reports are generated for the rows of a table.

    The settings of the prompts that are left out are those of ``run.json`` in the folder of the model, if a recipe
    trained it.

    Args:
        model: Folder or Hub id of a language model, an image-text model, or CT-CHAT.
        revision: Revision of a model on the Hub.
        input_column: Column for ``{input}`` of the prompt template. Default without a run: ``findings``.
        prompt_template: Prompt; ``{NAME}`` is the column of that name. Default without a run: ``{input}``.
        system_prompt: System message, a .txt file of it, or ``conversation.py`` of CT-CHAT's code.
        plain: Whether to use no chat template.
        image_column: Column of feature files for CT-CHAT, or of image files for an image-text model; paths are absolute
            or relative to the folder of the table.
        max_new_tokens: Longest report, in tokens.
        temperature: Temperature of sampling; 0 is greedy decoding.
        backend: Library that generates.
        vllm_option: Arguments of ``vllm.LLM``.
        device: Device of the model for transformers; ``auto`` is a GPU if there is one.
        dtype: Type of the weights; ``auto`` is the saved one.
        batch_size: Number of reports that are generated together. Default: 8; with vLLM 256.
        seed: Seed of sampling.

    Raises:
        SettingError: If a setting is invalid, or does not fit the backend.
    """

    model: str = setting(help="folder or Hub id of a model", metavar="MODEL")
    revision: str | None = setting(None, "revision of a model on the Hub")
    input_column: str | None = setting(
        None, "column for {input} (default: the column of the training, or findings)", metavar="NAME"
    )
    prompt_template: str | None = setting(
        None,
        "prompt; {input} is the input column, {NAME} is another column (default: the prompt of the training, or "
        "{input})",
        metavar="TEXT",
    )
    system_prompt: str | None = setting(
        None, "system message, a .txt file of it, or conversation.py of CT-CHAT's code", metavar="TEXT"
    )
    plain: bool = setting(False, "use no chat template")
    image_column: str | None = setting(
        None,
        "column of image files, for CT-CHAT of feature files; absolute or relative to the folder of TABLE",
        metavar="NAME",
    )
    max_new_tokens: int = setting(512, "longest report, in tokens (default: 512)", metavar="N", minimum=1)
    temperature: float = setting(0.0, "temperature of sampling; 0 is greedy decoding (default: 0)", minimum=0)
    backend: Literal["transformers", "vllm"] = setting("transformers", "library that generates (default: transformers)")
    vllm_option: Mapping[str, Any] = setting(
        {}, "argument of vllm.LLM, e.g. max_model_len=4096; may be repeated", form="NAME=VALUE"
    )
    device: str = setting("auto", "cpu, cuda, cuda:1, ... (default: a GPU if there is one)")
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = setting(
        "auto", "type of the weights; auto is the saved one"
    )
    batch_size: int | None = setting(None, minimum=1)
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend == "vllm" and self.device != "auto":
            raise SettingError("device", "vLLM runs on the device that it was installed for; leave the option out")
        if self.backend != "vllm" and self.vllm_option:
            raise SettingError("vllm_option", "needs the backend vllm")


@dataclass(frozen=True)
class GeneratedReports:
    """Generated reports.

    Args:
        reports: The report of each row; ``None`` for a row without input or volume.
        truncated: Whether each report was cut off at ``max_new_tokens``.
        settings: The settings.
        source: Name of the table.
    """

    reports: list[str | None]
    truncated: list[bool | None]
    settings: GenerationSettings = field(repr=False)
    source: str = "table"

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        return {
            "version": __version__,
            "table": self.source,
            "model": self.settings.model,
            "backend": self.settings.backend,
            "rows": len(self.reports),
            "generated": sum(report is not None for report in self.reports),
            "truncated": sum(map(bool, self.truncated)),
            "temperature": self.settings.temperature,
            "max_new_tokens": self.settings.max_new_tokens,
            "seed": self.settings.seed,
        }

    def __str__(self) -> str:
        words = [len(report.split()) for report in self.reports if report is not None]
        text = f"{len(words)} reports, {sum(words) / max(len(words), 1):.0f} words on average"
        if cut := sum(map(bool, self.truncated)):
            text += f"; {cut} cut off at the greatest length"
        if missing := len(self.reports) - len(words):
            text += f"; {missing} rows without input or volume have none"
        return text


def generate_reports(
    table: "Table", settings: GenerationSettings, partial: str | Path | None = None, log: RunLog | None = None
) -> GeneratedReports:
    """Generate a report for each row of a table.

    A batch contains the same rows in every run, so that a resumed run gives the reports of an uninterrupted one.

    Args:
        table: The table, as :func:`~rrg_rewards.data.read_table` returns it.
        settings: The model, the prompts and the decoding.
        partial: JSON lines file to which each report is appended. Reports that it contains from an interrupted run of
            the same settings and rows are not generated again. It is not removed at the end.
        log: Receives notes, warnings and progress. Default: Python warnings.

    Raises:
        SettingError: If the model is an adapter, has no chat template although prompts are not plain, or reads no
            volumes although there are any, or if ``partial`` is of other settings or rows.
        TableError: If a column is missing.
        FeatureError: If a feature file is missing or torn.
        FileNotFoundError: If the folder of the model or an image does not exist.
        ImportError: If the backend is not installed.
    """
    log = log or RunLog()
    check_model_source(settings.model, "model")
    settings = _with_prompts_of_training(settings, log)
    rows = _read_rows(table, settings)
    if (Path(settings.model) / "adapter_config.json").is_file():
        text = f"{settings.model} is a LoRA adapter; merge it first: rrg-rewards convert lora {settings.model}"
        raise SettingError(None, text)
    run = _Run(settings, rows, None if partial is None else Path(partial))
    if run.done:
        log.note(f"{partial} contains {len(run.done)} reports; the others are generated now")
    run.complete(log)
    found = [run.done.get(row, (None, None)) for row in range(len(rows))]
    return GeneratedReports([text for text, _ in found], [is_cut for _, is_cut in found], settings, table.source)


def _with_prompts_of_training(settings: GenerationSettings, log: RunLog) -> GenerationSettings:
    """Return the settings with those of the prompts that they leave open, from the run of the model if there is one."""
    path = Path(settings.model) / RUN_NAME
    config = read_prompt_settings(path.parent)
    config["plain"] = not config.pop("conversational", True)
    taken = {name: value for name, value in config.items() if value and not getattr(settings, name)}
    if taken:
        settings_text = ", ".join(f"{name} {value!r}" for name, value in taken.items())
        log.note(f"the prompts are those of the training ({path}): {settings_text}")
    settings = replace(settings, **taken)
    return replace(
        settings,
        input_column=settings.input_column or "findings",
        prompt_template=settings.prompt_template or "{input}",
    )


def read_prompt_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the prompts of the run that wrote a folder; none if no recipe wrote it.

    Raises:
        SettingError: If ``run.json`` is not a JSON object.
    """
    path = folder / RUN_NAME
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8")).get("config", {})
    except (ValueError, AttributeError) as error:
        text = f"{path} is not the file of a run; remove it, and pass the settings of the prompts"
        raise SettingError(None, text) from error
    return {name: config[name] for name in _PROMPT_SETTINGS if name in config}


def write_prompt_settings(config: Mapping[str, Any], folder: Path) -> None:
    """Write the settings of the prompts beside a model that is made of another one."""
    (folder / RUN_NAME).write_text(json.dumps({"config": config}, indent=2) + "\n", encoding="utf-8")


def _read_rows(table: "Table", settings: GenerationSettings) -> list[dict[str, Any] | None]:
    """Return the prompt and the image of each row; ``None`` for a row without input or image."""
    from rrg_rewards.recipes._arguments import DataArguments, make_prompt, prompt_columns
    from rrg_rewards.utilities.features import FEATURE_ENDINGS, check_features

    names = ("input_column", "image_column", "system_prompt", "prompt_template")
    prompts = {name: getattr(settings, name) for name in names}
    arguments = DataArguments(dataset=table.source, conversational=not settings.plain, **prompts)
    system, columns = arguments.system_text, {name: table.column(name) for name in sorted(prompt_columns(arguments))}
    images = table.column(settings.image_column) if settings.image_column else [None] * len(table)
    folder = Path(table.source).parent
    rows: list[dict[str, Any] | None] = []
    for index, image in enumerate(images):
        cells = {name: column[index] for name, column in columns.items()}
        if any(map(_is_blank, cells.values())) or (settings.image_column and _is_blank(image)):
            rows.append(None)
            continue
        path = {} if settings.image_column is None else {"image": str(folder / image)}
        for file in path.values():
            if file.endswith(FEATURE_ENDINGS):
                check_features(file)
            elif not Path(file).is_file():
                raise FileNotFoundError(
                    f"{file}: there is no such image, which row {index + 1} of {table.source} names"
                )
        rows.append({"prompt": make_prompt(cells, arguments, system), **path})
    return rows


def _is_blank(cell: Any) -> bool:
    from rrg_rewards.data.tables.table import is_missing

    return is_missing(cell) or not str(cell).strip()


class _Run:
    """Generates the reports that are missing, in batches, and appends each to a file of its own settings and rows."""

    def __init__(
        self, settings: GenerationSettings, rows: Sequence[dict[str, Any] | None], partial: Path | None
    ) -> None:
        self._settings = settings
        self._rows = rows
        self._partial = partial
        # The device changes no report.
        run = [{**asdict(settings), "device": None}, rows]
        self._digest = hashlib.sha256(json.dumps(run, sort_keys=True, default=str).encode()).hexdigest()[:16]
        self.done = self._read()

    def complete(self, log: RunLog) -> None:
        """Generate the missing reports."""
        from rrg_rewards.data.tables.appending import AppendedLines
        from rrg_rewards.models.ct_chat.system_prompt import MISSING_SYSTEM_PROMPT

        size = self._settings.batch_size or _BATCH_SIZES[self._settings.backend]
        todo = [row for row, content in enumerate(self._rows) if content is not None]
        with log.progress("generating") as progress:
            progress(len(self.done), len(todo))
            if len(self.done) == len(todo):
                return
            backend = _load_vllm(self._settings) if self._settings.backend == "vllm" else _Transformers(self._settings)
            if getattr(backend.config, "uses_system_prompt", False) and self._settings.system_prompt is None:
                log.warn(MISSING_SYSTEM_PROMPT)
            with nullcontext() if self._partial is None else AppendedLines(self._partial) as lines:
                for start in range(0, len(todo), size):
                    progress(self._complete(backend, todo[start : start + size], lines), 0)

    def _complete(self, backend: "_Backend", batch: Sequence[int], lines: "AppendedLines | None") -> int:
        """Generate the reports of a batch, unless all are done; return the number of new ones."""
        missing = [row for row in batch if row not in self.done]
        if not missing:
            return 0
        contents = [content for row in batch if (content := self._rows[row]) is not None]
        reports = backend.generate(contents, [self._settings.seed + row for row in batch])
        for row, (text, is_finished) in zip(batch, reports, strict=True):
            if row in missing:
                self.done[row] = (text, not is_finished)
                if lines is not None:
                    line = {"row": row, "prediction": text, "truncated": not is_finished, "settings": self._digest}
                    lines.append(line)
        return len(missing)

    def _read(self) -> dict[int, tuple[str, bool]]:
        from rrg_rewards.data.tables.appending import read_whole_lines

        held = None if self._partial is None else read_whole_lines(self._partial)
        if held is None:
            return {}
        if set(held.column("settings")) != {self._digest}:
            raise SettingError(
                None,
                f"{self._partial} is of an interrupted run with other settings or rows; delete it, or choose another "
                "output",
            )
        columns = (held.column(name) for name in ("row", "prediction", "truncated"))
        return {row: (text, is_cut) for row, text, is_cut in zip(*columns, strict=True)}


class _Backend(Protocol):
    """Generates reports."""

    config: Any
    """The model's configuration."""

    def generate(self, rows: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[tuple[str, bool]]:
        """Return the report of each row, and whether it ends by itself."""


def _load_vllm(settings: GenerationSettings) -> _Backend:
    # As the messages of the command line; vLLM reads the variables when it is imported.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    from rrg_rewards.integrations.vllm.reports import VLLMReports

    processor, config = _load_processor(settings)
    dtype = {} if settings.dtype == "auto" else {"dtype": settings.dtype}
    return VLLMReports(
        settings.model,
        processor,
        config,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        has_images=settings.image_column is not None,
        options={"revision": settings.revision, "seed": settings.seed, **dtype, **settings.vllm_option},
    )


def _load_processor(settings: GenerationSettings) -> tuple[Any, Any]:
    """Load the processor of a model that reads images or the tokenizer of another one, and the configuration.

    Raises:
        SettingError: If prompts need a chat template and there is none, or rows have images and the model reads none.
            The weights need not be loaded to know.
    """
    transformers = require("transformers", extra="models")
    # Registers the configuration of CT-CHAT with transformers.
    import rrg_rewards.models.ct_chat.model  # noqa: F401
    from rrg_rewards.models.ct_chat.config import CTChatConfig

    name, revision = settings.model, settings.revision
    config = transformers.AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=False)
    is_ct_chat, has_images = isinstance(config, CTChatConfig), settings.image_column is not None
    reads_images = is_ct_chat or (
        settings.backend == "transformers" and type(config) in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    )
    if has_images and not reads_images:
        kind = "an image-text or CT-CHAT" if settings.backend == "transformers" else "a CT-CHAT"
        raise SettingError("image_column", f"needs {kind} model; {name} is a {config.model_type}")
    loader = transformers.AutoProcessor if is_ct_chat or has_images else transformers.AutoTokenizer
    processor = loader.from_pretrained(name, revision=revision, trust_remote_code=False)
    if not settings.plain and not processor.chat_template:
        raise SettingError("plain", f"is necessary, because the tokenizer of {name} has no chat template")
    return processor, config


class _Transformers:
    """Generates the reports of a batch together, from the seed of its first row."""

    def __init__(self, settings: GenerationSettings) -> None:
        import torch

        transformers = require("transformers", extra="models")
        from rrg_rewards.models.ct_chat.config import CTChatConfig
        from rrg_rewards.training.policy.hf_generators import CausalLMGenerator, CTChatGenerator, ImageTextGenerator

        name, revision, has_images = settings.model, settings.revision, settings.image_column is not None
        device = ("cuda" if torch.cuda.is_available() else "cpu") if settings.device == "auto" else settings.device
        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise SettingError("device", f"{device!r} is not available: {str(error).splitlines()[0]}") from error
        processor, self.config = _load_processor(settings)
        is_image_text = has_images and not isinstance(self.config, CTChatConfig)
        loader = transformers.AutoModelForImageTextToText if is_image_text else transformers.AutoModelForCausalLM
        model = loader.from_pretrained(name, dtype=settings.dtype, revision=revision, trust_remote_code=False)
        model = model.to(device).eval()
        tokenizer = processor.tokenizer if isinstance(processor, transformers.ProcessorMixin) else processor
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        options: Any = {"max_new_tokens": settings.max_new_tokens, "temperature": settings.temperature or 1.0}
        of_images = ImageTextGenerator if is_image_text else CTChatGenerator
        self._generator = (of_images if has_images else CausalLMGenerator)(model, processor, **options)
        self._is_greedy = not settings.temperature

    def generate(self, rows: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[tuple[str, bool]]:
        """Return the report of each row, and whether it ends by itself."""
        import torch

        torch.manual_seed(seeds[0])
        device = self._generator.model.device
        inputs = {
            name: value.to(device) if torch.is_tensor(value) else value
            for name, value in self._generator.collate(rows).items()
        }
        with torch.inference_mode():
            completions = self._generator.sample(inputs, greedy=self._is_greedy)
        finished: Any = completions.finished
        return list(zip(self._generator.decode(completions), finished.tolist(), strict=True))
