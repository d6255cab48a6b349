"""The number of workers that a Ray cluster can run."""

import warnings
from typing import Any

import pytest

from rrg_rewards.integrations.ray_cluster import Cluster, checked_workers
from rrg_rewards.utilities.settings import SettingError


def test_checked_workers_refuses_workers_that_a_cluster_cannot_hold() -> None:
    cluster = {"CPU": 4.0, "GPU": 1.0, "memory": 1e9}
    assert checked_workers(4, {"CPU": 1, "GPU": 0}, cluster, cluster) == 4
    assert checked_workers(None, {"CPU": 1, "GPU": 0}, cluster, cluster) == 4
    # GPUs limit the default, and three thirds are a whole GPU.
    assert checked_workers(None, {"CPU": 1, "GPU": 1 / 3}, cluster, cluster) == 3
    with pytest.raises(
        ValueError, match=r"^5 workers need 5 CPU, but the Ray cluster has 4 CPU: workers can be at most 4"
    ):
        checked_workers(5, {"CPU": 1, "GPU": 0}, cluster, cluster)
    with pytest.raises(ValueError, match=r"^2 workers need 2 CPU and 2 GPU, but .* has 4 CPU and 1 GPU: .* at most 1"):
        checked_workers(2, {"CPU": 1, "GPU": 1}, cluster, cluster)
    with pytest.raises(ValueError, match=r"^1 worker needs 1 CPU and 1 GPU, .* has 4 CPU and 0 GPU: not even one"):
        checked_workers(None, {"CPU": 1, "GPU": 1}, {"CPU": 4.0}, {"CPU": 4.0})


def test_checked_workers_warns_of_workers_that_wait_for_other_work() -> None:
    cluster = {"CPU": 4.0}
    with pytest.warns(RuntimeWarning, match=r"3 workers need 3 CPU, but only 1.5 CPU of .* 4 CPU are free.* now: 1$"):
        assert checked_workers(3, {"CPU": 1}, cluster, {"CPU": 1.5}) == 3
    # Ray leaves out a resource of which nothing is free.
    with pytest.warns(RuntimeWarning, match="only 0 CPU"):
        checked_workers(None, {"CPU": 1}, cluster, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked_workers(4, {"CPU": 1}, cluster, cluster)


def test_checked_workers_a_part_of_a_gpu_is_of_a_single_one() -> None:
    cluster = {"CPU": 8.0, "GPU": 2.0}
    assert checked_workers(None, {"CPU": 1, "GPU": 0.6}, cluster, cluster) == 2
    assert checked_workers(None, {"CPU": 1, "GPU": 0.4}, cluster, cluster) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checked_workers(1, {"GPU": 0.5}, cluster, {"GPU": 0.5}) == 1


def test_checked_workers_leave_resources_to_other_tasks() -> None:
    cluster, spare = {"CPU": 4.0}, {"CPU": 2.0}
    assert checked_workers(4, {"CPU": 0.5}, cluster, cluster, spare) == 4
    message = r"^5 workers need 2\.5 CPU, and the tasks that read and write 2 CPU, but .* has 4 CPU: .* at most 4\."
    with pytest.raises(SettingError, match=message):
        checked_workers(5, {"CPU": 0.5}, cluster, cluster, spare)
    with pytest.raises(SettingError, match="not even one worker fits"):
        checked_workers(1, {"CPU": 0.5}, {"CPU": 1.0}, {"CPU": 1.0}, spare)


class FakeRay:
    """Ray connected to a cluster with these resources."""

    def __init__(self, **resources: float) -> None:
        self.resources = resources

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    available_resources = cluster_resources


@pytest.mark.parametrize(
    ("resources", "settings", "workers"),
    [
        ({"CPU": 8.0}, {}, 6),
        ({"CPU": 3.0}, {}, 1),
        ({"CPU": 3.0}, {"workers": 2}, 2),
        ({"CPU": 8.0, "GPU": 2.0}, {"num_gpus": 1}, 2),
        ({"CPU": 8.0, "GPU": 2.0}, {"num_gpus": 0.5, "workers": 3}, 3),
    ],
)
def test_cluster_has_a_worker_for_each_cpu_or_gpu(
    monkeypatch: pytest.MonkeyPatch, resources: dict[str, float], settings: dict[str, Any], workers: int
) -> None:
    ray = FakeRay(**resources)
    monkeypatch.setattr("rrg_rewards.integrations.ray_cluster.require", lambda *_, **__: ray)
    with Cluster(**settings).connected() as connected:
        assert connected == (ray, workers)


def test_cluster_without_the_gpus_of_the_workers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrg_rewards.integrations.ray_cluster.require", lambda *_, **__: FakeRay(CPU=8.0))
    message = r"^1 worker needs 0\.5 CPU and 1 GPU, .* has 8 CPU and 0 GPU: not even one worker fits"
    with pytest.raises(SettingError, match=message), Cluster(num_gpus=1).connected():
        pass
