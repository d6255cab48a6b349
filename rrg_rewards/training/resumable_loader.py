"""A data loader and a data module that continue within an epoch."""

from collections.abc import Iterator, Mapping
from typing import Any

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

__all__ = ["ResumableDataModule", "ResumableLoader"]


class ResumableLoader(DataLoader[Any]):
    """A data loader whose position is stored in Lightning's checkpoints.

    Its ``sampler`` has an attribute ``start``: the number of batches that its next iteration skips.
    """

    _given = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # Lightning needs no more
        sampler: Any = self.sampler
        self._given = sampler.start
        for batch in super().__iter__():
            self._given += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Return the number of batches that were returned in the epoch."""
        return {"given": self._given % len(self)}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Skip the batches that were returned before the checkpoint."""
        sampler: Any = self.sampler
        sampler.start = state["given"]


class ResumableDataModule(LightningDataModule):  # type: ignore[misc]  # Lightning is an optional dependency
    """Base class of data modules whose training loader is a :class:`ResumableLoader`.

    Lightning restores the state of a loader only if no schedule of the learning rate has counted the steps, for which
    it builds the loader too early. The state of a data module is restored before.
    """

    _resumed: Mapping[str, int] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the training loader for a checkpoint."""
        loader = None if self.trainer is None else self.trainer.train_dataloader
        return {"train": loader.state_dict()} if isinstance(loader, ResumableLoader) else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the position at the next :meth:`resumed`."""
        self._resumed = state_dict.get("train")

    def resumed(self, loader: ResumableLoader) -> ResumableLoader:
        """Return a new training loader at the restored position."""
        if self._resumed is not None:
            loader.load_state_dict(self._resumed)
            self._resumed = None
        return loader
