"""Run a test function in several processes of one group, joined by gloo or NCCL, or a script as a launcher would.

A test calls :func:`run_distributed` on a module-level function of its own file::

    def check(rank, world_size, rows):
        ...
        return metric.compute()

    def test_it():
        results = run_distributed(check, 2, rows)

:func:`run_script` runs a script that joins its group by itself, with the variables that torchrun sets.

Each call runs in new processes with a new process group. Importing torch and trainers takes seconds, therefore each
rank has a server, started at its first use, that imports them once and forks a process for each call. There is one
server per rank, so that ranks differ in their hash seed.

There is no fallback to one process. A process that does not start, raises or hangs fails the test.
"""

import contextlib
import functools
import importlib
import os
import pickle
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

from reserved_port import reserved_port

ROOT = Path(__file__).resolve().parents[2]
# Imported by the servers. None of them starts a thread of its own, which a fork would not copy.
PRELOADED = ("torch.distributed", "torchmetrics", "transformers", "pytest", "rrg_rewards.rewards")
# Imported before the first script.
TRAINERS = ("lightning.pytorch", "deepspeed", "peft", "rrg_rewards.recipes.grpo", "rrg_rewards.training.metrics.cli")


def run_distributed(
    function: Callable[..., Any], world_size: int, *args: Any, timeout: float = 120.0, backend: str = "gloo"
) -> list[Any]:
    """Call ``function(rank, world_size, *args)`` in ``world_size`` processes of one group.

    Args:
        function: A module-level function of a module below ``tests``; it is pickled by its name.
        world_size: Number of processes.
        args: Further arguments; they and the returned values must pickle.
        timeout: Seconds after which all processes are killed and the test fails.
        backend: ``gloo``, or ``nccl``, where each process has a GPU of its own.

    Returns:
        What the function returned, by rank.

    Raises:
        AssertionError: If a process fails, with its output, or if time runs out.
    """
    return _forked((_in_a_group, (function, args, backend, timeout)), world_size, timeout)[0]


def run_script(script: Path, *arguments: Any, processes: int = 1, timeout: float = 300.0) -> str:
    """Run a script with arguments to its end, and return its output; see :func:`run_distributed`.

    Several processes find the variables of torchrun, a single one does not.
    """
    argv = [str(script), *map(str, arguments)]
    with reserved_port() as port:
        return _forked((_as_main, (argv, port)), processes, timeout, TRAINERS)[1]


def _forked(call: Any, world_size: int, timeout: float, preloaded: Sequence[str] = ()) -> tuple[list[Any], str]:
    """Let the servers import what is to be preloaded and make the call; return the values by rank, and the output."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "call.pkl").write_bytes(pickle.dumps(call))
        processes: list[_Process] = []
        # All are started before the first one is awaited.
        servers = [_server(rank) for rank in range(world_size)]
        try:
            for server in servers:
                processes.append(server.start(folder, world_size, preloaded))
            failure = _wait(processes, timeout, folder / "first_failed")
        finally:
            for process in processes:
                process.kill()
        logs = "\n".join(f"--- rank {rank}\n{(folder / f'{rank}.log').read_text()}" for rank in range(world_size))
        assert failure is None, f"{call[1][0]} in {world_size} processes: {failure}\n{logs}"
        return [pickle.loads((folder / f"{rank}.pkl").read_bytes()) for rank in range(world_size)], logs


def _wait(processes: list["_Process"], timeout: float, first_failed: Path) -> str | None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        codes = [process.poll() for process in processes]
        if any(codes):
            # The other ranks may have failed only because this one did.
            if first_failed.is_symlink():
                return f"rank {first_failed.readlink()} failed"
            code = next(filter(None, codes))
            return f"rank {codes.index(code)} ended with exit code {code}"
        if all(code == 0 for code in codes):
            return None
        time.sleep(0.02)
    return f"still running after {timeout} s"


class _Server:
    """A process that imports the libraries once and forks a process for each call of its rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        # One thread a process: the processes share the machine's few cores.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        # As pytest has it, by its setting `pythonpath`.
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests" / "helpers"), os.environ.get("PYTHONPATH", "")])
        # Asking for a GPU must not start CUDA, which a fork would not copy.
        environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        command = [sys.executable, __file__, str(rank)]
        # Without a buffer: `select` would not see what is in it.
        self.popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
        )

    def start(self, folder: Path, world_size: int, preloaded: Sequence[str]) -> "_Process":
        """Fork a process; ``folder`` contains the pickled call."""
        (folder / f"{self.rank}.log").touch()
        self.write(f"{world_size} {','.join(preloaded)} {folder}")
        return _Process(self, int(self.read()))

    def write(self, line: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(line.encode() + b"\n")

    def read(self) -> str:
        """Return the next line that the server wrote; fail if it has ended or is silent for ten minutes."""
        assert self.has_written(within=600), f"the server of rank {self.rank} does not answer"
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, f"the server of rank {self.rank} ended with exit code {self.popen.wait()}"
        return line.decode()

    def has_written(self, within: float = 0) -> bool:
        assert self.popen.stdout is not None
        return bool(select.select([self.popen.stdout], [], [], within)[0])


@dataclass
class _Process:
    """A process that a server forked; the server writes its exit code when it ends."""

    server: _Server
    pid: int
    code: int | None = None

    def poll(self) -> int | None:
        if self.code is None and self.server.has_written():
            self.code = int(self.server.read())
        return self.code

    def kill(self) -> None:
        """End the process, unless it has ended, and wait for it."""
        if self.poll() is None:
            # The server may have reaped it meanwhile.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.code = int(self.server.read())


@functools.cache
def _server(rank: int) -> _Server:
    return _Server(rank)


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


def _serve(rank: int) -> None:
    """Fork a process for each line of standard input; write its process id, and its exit code when it ends."""
    # `tests` is made by hand: with the root on sys.path, `callbacks` would be a second copy of rrg_rewards.callbacks.
    tests = ModuleType("tests")
    tests.__path__ = [str(ROOT / "tests")]
    sys.modules["tests"] = tests
    # Run as a script, this folder comes first: `helpers` must not be importable under a second name either.
    own = str(Path(__file__).resolve().parent)
    sys.path[:] = [entry for entry in sys.path if entry != own]
    # Only exit codes go to standard output.
    answers = os.dup(1)
    os.dup2(2, 1)
    for name in PRELOADED:
        importlib.import_module(name)
    while line := sys.stdin.readline():
        world_size, preloaded, folder = line.rstrip("\n").split(" ", 2)
        for name in filter(None, preloaded.split(",")):
            # DeepSpeed selects its accelerator when it is imported.
            os.environ.setdefault("DS_ACCELERATOR", "cpu")
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(name)
        pid = os.fork()
        if pid == 0:
            os.close(answers)
            _run(Path(folder), rank, int(world_size))
        os.write(answers, f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _run(folder: Path, rank: int, world_size: int) -> None:
    """Make the call in ``folder``, write what it returned, and end the process."""
    with (folder / f"{rank}.log").open("wb") as log, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    code = 1
    try:
        function, args = pickle.loads((folder / "call.pkl").read_bytes())
        (folder / f"{rank}.pkl").write_bytes(pickle.dumps(function(rank, world_size, folder, *args)))
        code = 0
    except SystemExit as ended:
        # As Python ends.
        code = ended.code if isinstance(ended.code, int) else 1
        sys.stderr.write(f"{ended.code}\n")
    except BaseException:
        traceback.print_exc()
        # Before the connections to the other ranks close, which makes them fail too.
        # A link, which appears whole and only once.
        with contextlib.suppress(FileExistsError):
            (folder / "first_failed").symlink_to(str(rank))
    finally:
        # All that is tested is done and written. If the interpreter ended while a native thread still wants its lock,
        # the process would abort now and then ("terminate called without an active exception").
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _in_a_group(
    rank: int, world_size: int, folder: Path, function: Any, args: Any, backend: str, timeout: float
) -> Any:
    dist = importlib.import_module("torch.distributed")
    if backend == "nccl":
        importlib.import_module("torch.cuda").set_device(rank)
    dist.init_process_group(
        backend,
        # A file and not a port: ports can be taken between finding one and using it.
        init_method=(folder / "rendezvous").as_uri(),
        rank=rank,
        world_size=world_size,
        # Longer than the test waits, so that the test finds the process that hangs and not one that waits for it.
        timeout=timedelta(seconds=2 * timeout),
    )
    assert dist.get_world_size() == world_size
    result = function(rank, world_size, *args)
    # A rank that leaves early would break the connections of the others.
    dist.barrier()
    dist.destroy_process_group()
    return result


def _as_main(rank: int, world_size: int, folder: Path, argv: list[str], port: int) -> None:
    if world_size > 1:
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size}
        os.environ.update({name: str(value) for name, value in ranks.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = argv
    sys.path.insert(0, str(Path(argv[0]).parent))
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
