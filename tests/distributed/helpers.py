"""Runs a test function in several real processes: each one a fresh interpreter, joined by gloo.

A test calls :func:`run_distributed` on a module-level function of its own file::

    def check(rank, world_size, rows):
        ...
        return metric.compute()

    def test_it():
        results = run_distributed(check, 2, rows)

There is no way to fall back to one process: a process that does not start, raises or hangs fails the test.
"""

import importlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def run_distributed(function: Callable[..., Any], world_size: int, *args: Any, timeout: float = 120.0) -> list[Any]:
    """Call ``function(rank, world_size, *args)`` in ``world_size`` processes of one gloo group.

    Args:
        function: A module-level function of a module below ``tests``; it is pickled by its name.
        world_size: Number of processes.
        args: Further arguments; they and the returned values must pickle.
        timeout: Seconds after which all processes are killed and the test fails.

    Returns:
        What the function returned, by rank.

    Raises:
        AssertionError: If a process fails, with its output, or if time runs out.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "call.pkl").write_bytes(pickle.dumps((function, args)))
        # One thread a process: the processes share the machine's few cores.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        processes = []
        try:
            for rank in range(world_size):
                command = [sys.executable, __file__, name, str(rank), str(world_size), str(timeout)]
                with (folder / f"{rank}.log").open("wb") as log:
                    processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
            failure = _wait(processes, timeout)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        logs = "\n".join(f"--- rank {rank}\n{(folder / f'{rank}.log').read_text()}" for rank in range(world_size))
        assert failure is None, f"{function.__name__} in {world_size} processes: {failure}\n{logs}"
        return [pickle.loads((folder / f"{rank}.pkl").read_bytes()) for rank in range(world_size)]


def _wait(processes: list["subprocess.Popen[bytes]"], timeout: float) -> str | None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        codes = [process.poll() for process in processes]
        for rank, code in enumerate(codes):
            if code:
                # The others may fail only because this one is gone: give them no time to bury its message.
                return f"rank {rank} failed with exit code {code}"
        if all(code == 0 for code in codes):
            return None
        time.sleep(0.05)
    return f"still running after {timeout} s"


def launch_and_wait(command: list[str], environment: dict[str, str], timeout: float) -> None:
    """Run a launcher, or a process, to its end; where it hangs or fails, end its whole process group and fail."""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as launcher:
        try:
            output, _ = launcher.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(launcher.pid, signal.SIGTERM)
            output, _ = launcher.communicate(timeout=30)
            raise AssertionError(f"the processes hung:\n{output[-4000:]}") from None
    assert launcher.returncode == 0, output[-4000:]


def _main(name: str, rank: int, world_size: int, timeout: float) -> None:
    # `tests` is made by hand: with the root on sys.path, `callbacks` would be a second copy of rrg_rewards.callbacks.
    tests = ModuleType("tests")
    tests.__path__ = [str(ROOT / "tests")]
    sys.modules["tests"] = tests
    # Run as a script, this folder comes first: `helpers` must not be importable under a second name either.
    own = str(Path(__file__).resolve().parent)
    sys.path[:] = [entry for entry in sys.path if entry != own]
    # As pytest has it, by its setting `pythonpath`.
    sys.path.append(str(ROOT / "tests" / "helpers"))
    dist = importlib.import_module("torch.distributed")
    folder = Path(name)
    dist.init_process_group(
        "gloo",
        # A file and not a port: ports can be taken between finding one and using it.
        init_method=(folder / "rendezvous").as_uri(),
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout),
    )
    assert dist.get_world_size() == world_size
    function, args = pickle.loads((folder / "call.pkl").read_bytes())
    result = function(rank, world_size, *args)
    (folder / f"{rank}.pkl").write_bytes(pickle.dumps(result))
    # A rank that leaves early would break the connections of the others.
    dist.barrier()
    dist.destroy_process_group()
    # All that is tested is done and written. Where the interpreter ends while a native thread still wants its lock, the
    # process aborts now and then ("terminate called without an active exception").
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
