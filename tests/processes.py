"""Other processes: forked within milliseconds from a server that has torch loaded, and never waited for forever."""

import contextlib
import multiprocessing
import multiprocessing.forkserver
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from lookalike.utils.locks import locked

PATIENCE = 120  # seconds until what a test waits for will never happen
PAUSE = 0.01  # seconds between two looks at what a test waits for
FORKSERVER = multiprocessing.get_context("forkserver")
LOADED = ("torch._dynamo", "numba", "lookalike.cli", "lookalike.training.run", "lookalike.mining.texts")  # always
LOADED_IF_WANTED = ("sentence_transformers", "datasets", "accelerate", "lightning.pytorch")  # if a test has them loaded


def start_server():
    """Start the server that processes are forked from. It loads its modules meanwhile; the first fork waits for it."""
    if multiprocessing.forkserver._forkserver._forkserver_pid is not None:
        return
    FORKSERVER.set_forkserver_preload([*LOADED, *(name for name in LOADED_IF_WANTED if name in sys.modules)])
    with pytest.MonkeyPatch.context() as patch, _printing_to_nobody():
        patch.setenv("OMP_NUM_THREADS", "1")  # more threads than cores wait for each other
        multiprocessing.forkserver.ensure_running()


@contextlib.contextmanager
def _printing_to_nobody():
    """Let what is started meanwhile print to nobody: it outlives the test whose output this process captures."""
    kept = [os.dup(number) for number in (1, 2)]
    nobody = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            os.dup2(nobody, number)
        yield
    finally:
        for number, handle in enumerate(kept, start=1):
            os.dup2(handle, number)
        for handle in (*kept, nobody):
            os.close(handle)


def stop_server():
    """End the server, once everything that was forked has ended."""
    multiprocessing.forkserver._forkserver._stop()


def kill_children(spared=()):
    """Kill the children of this process, but for some; return those that ran, which should have ended by themselves."""
    left = [process for process in multiprocessing.active_children() if process.pid not in spared]
    for process in left:
        process.kill()
        process.join(PATIENCE)
    return left


def wait_until(condition, process=None, patience=PATIENCE):
    """Return the first true value of `condition()`; fail after some seconds, or when a process ends without it."""
    deadline = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < deadline, f"what was waited for did not happen in {patience} s"
        if process is not None and process.poll() is not None:
            found = condition()  # it may have happened between the two looks
            assert found, f"the process ended with status {process.poll()}: {process.communicate()}"
            break
        time.sleep(PAUSE)
    return found


def first_line(stream):
    """Return the first line that another process prints; empty if it ends without one."""
    ready, _, _ = select.select([stream], [], [], PATIENCE)
    assert ready, f"nothing was printed in {PATIENCE} s"
    return stream.readline()


class Child:
    """A process that runs `function(*arguments)`; to be used like a `subprocess.Popen` with text for its output.

    It has the environment and the folder of this process. Use it in a `with` statement, which kills it at the end.

    Args:
        function: A function of a module. The process ends with status 0 when it returns, with 1 and a traceback when
            it raises an exception, and with the status of a `SystemExit`.
        arguments: The function's arguments.
        cwd: Another folder.
        env: Other environment variables. Libraries are loaded: they have read OMP_NUM_THREADS, which was 1.
    """

    def __init__(self, function, *arguments, cwd=None, env=None):
        self._folder = tempfile.TemporaryDirectory()
        self._outputs = [Path(self._folder.name, name) for name in ("stdout", "stderr")]
        for path in self._outputs:
            path.touch()
        surroundings = (self._outputs, str(cwd or Path.cwd()), dict(os.environ if env is None else env))
        self._process = FORKSERVER.Process(target=_run, args=(*surroundings, function, arguments))
        start_server()
        self._process.start()
        self.pid, self.returncode = self._process.pid, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.communicate()

    @property
    def printed(self):
        """Its standard output until now."""
        return self._outputs[0].read_text()

    @property
    def errors(self):
        """Its standard error until now."""
        return self._outputs[1].read_text()

    def poll(self):
        if self.returncode is None:
            self.returncode = self._process.exitcode
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout=PATIENCE):
        """Wait for its end; after `timeout` seconds it is killed, and the test fails."""
        if self.returncode is None:
            self._process.join(timeout)
            if self.poll() is None:
                self.kill()
                self._process.join()
                raise AssertionError(f"the process did not end in {timeout} s: {self.communicate()}")
        return self.returncode

    def communicate(self, timeout=PATIENCE):
        """Wait for its end; return what it wrote to its standard output and error."""
        if self._folder is not None:
            self.wait(timeout)
            self.stdout, self.stderr = (path.read_text() for path in self._outputs)
            self._process.close()
            self._folder.cleanup()
            self._folder = None
        return self.stdout, self.stderr


def _run(outputs, cwd, env, function, arguments):
    for number, path in enumerate(outputs, start=1):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, number)
        os.close(handle)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    multiprocessing.set_start_method(None, force=True)  # its own children are started as everywhere
    os.close(resource_tracker._resource_tracker._fd)  # whoever is killed leaves semaphores to a tracker of its own
    resource_tracker._resource_tracker._fd = None
    function(*arguments)


def run_function(function, *arguments, timeout=PATIENCE, **options):
    """Run a function in another process to its end, as `subprocess.run` does; see `Child`."""
    with Child(function, *arguments, **options) as child:
        stdout, stderr = child.communicate(timeout)
        return subprocess.CompletedProcess(function.__name__, child.returncode, stdout, stderr)


def command_line(*arguments):
    """Do what `lookalike ARGUMENTS` does: `Child(command_line, "train", "--help")`."""
    from lookalike.cli import main

    sys.argv = ["lookalike", *map(str, arguments)]
    main()


def program(code, *arguments):
    """Do what `python -c CODE ARGUMENTS` does: `run_function(program, code)`."""
    sys.argv = ["-c", *map(str, arguments)]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})


def resident_bytes():
    """The memory that this process occupies; Linux tells it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def hold(folder):
    """Do what a program `hold FOLDER` would do that takes the folder for itself until it is killed."""
    sys.argv = ["hold", str(folder)]
    with locked(Path(folder)):
        print("held", flush=True)
        multiprocessing.parent_process().join()  # ends with the tests at the latest


@contextlib.contextmanager
def held_by_another(folder):
    """Hold a folder in another process, as a training does in its own."""
    with Child(hold, folder) as holder:
        wait_until(lambda: holder.printed, holder)
        yield holder
