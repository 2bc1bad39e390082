"""Compile the CUDA kernels at first use, cache them on disk, and launch them."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
from functools import cache
from pathlib import Path
from typing import Any

import torch

from lookalike.utils.files import cache_folder, replacing

SIGN_SOURCES = (  # joined in this order
    "keys.cu",
    "signs.cu",
    "sums.cu",
    "lists.cu",
    "hamming.cu",
    "scan.cu",
    "warpgroup.cu",
    "hopper.cu",
    "limits.cu",
    "survey.cu",
    "prepare.cu",
    "draw.cu",
    "order.cu",
    "repair.cu",
)
VALUE_SOURCES = (
    "keys.cu",
    "integers.cu",
    "thresholds.cu",
    "lists.cu",
    "bytes.cu",
    "values.cu",
    "values_scan.cu",
    "limits.cu",
    "values_survey.cu",
    "unpack.cu",
    "draw.cu",
    "order.cu",
    "repair.cu",
)
SHARED = 24 << 10  # bytes of shared memory that a block gets unasked, beside up to 24 KiB that its kernel declares
LEGACY_STREAM = 1  # the driver's name for the default stream; a null handle may mean a closed stream


class Kernels:
    """The kernels of one compiled program, launched on torch's current stream."""

    def __init__(self, cubin: bytes) -> None:
        self._core = cuda_core()
        self._code = self._core.ObjectCode.from_cubin(cubin)
        self._kernels: dict[str, Any] = {}
        self._enlarged: dict[tuple[str, int], int] = {}

    def launch(self, name: str, grid: tuple[int, int], block: int, *arguments: Any, shared: int = 0) -> None:
        """Launch a kernel; tensors are passed by address, None as a null pointer, integers as 64 bits."""
        if name not in self._kernels:
            self._kernels[name] = self._code.get_kernel(name)
        if shared > SHARED:
            self._enlarge(name, shared)
        handle = torch.cuda.current_stream().cuda_stream
        self._core.launch(
            self._core.Stream.from_handle(handle or LEGACY_STREAM),
            self._core.LaunchConfig(grid=(*grid, 1), block=(block, 1, 1), shmem_size=shared),
            self._kernels[name],
            *map(_argument, arguments),
        )

    def _enlarge(self, name: str, shared: int) -> None:
        """Let a kernel have more shared memory on the current device than it gets unasked."""
        device = torch.cuda.current_device()
        if self._enlarged.get((name, device), 0) >= shared:
            return
        driver = importlib.import_module("cuda.bindings.driver")
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        handle = self._kernels[name]._handle  # noqa: SLF001 - the first versions have no public one
        (error,) = driver.cuKernelSetAttribute(attribute, shared, handle, device)
        if int(error):
            raise RuntimeError(f"This GPU does not give a kernel {shared} bytes of shared memory ({error.name}).")
        self._enlarged[name, device] = shared


def load_kernels(macros: tuple[tuple[str, int], ...], device: int) -> Kernels:
    """Load the kernels for these macros and this device, which becomes this thread's current device."""
    cuda_core().Device(device).set_current()
    major, minor = torch.cuda.get_device_capability(device)
    return _loaded(macros, f"sm_{major}{minor}" + ("a" if "HOPPER" in dict(macros) else ""))


@cache
def _loaded(macros: tuple[tuple[str, int], ...], arch: str) -> Kernels:
    return Kernels(cubin_of(macros, arch))


def sources_of(macros: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """Name the files of the program for these macros: sign codes have words, codes of several bits slices of values."""
    return SIGN_SOURCES if "WORDS" in dict(macros) else VALUE_SOURCES


def cubin_of(macros: tuple[tuple[str, int], ...], arch: str) -> bytes:
    """Return machine code for these macros and this architecture, from the cache on disk or compiled."""
    source = "\n".join((Path(__file__).parent / name).read_text() for name in sources_of(macros))
    key = hashlib.sha256(repr((source, arch, macros, _compiler_version())).encode()).hexdigest()[:32]
    path = cache_folder() / "cuda" / f"{arch}-{key}.cubin"
    with contextlib.suppress(OSError):
        return path.read_bytes()
    cubin = _compiled(source, macros, arch)
    with contextlib.suppress(OSError):  # without a cache each process compiles again, which takes a second
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(cubin)
    return cubin


@cache
def cuda_core() -> Any:
    """Import cuda-core, whose module depends on its version.

    Raises:
        ImportError: It, or something it needs, is not installed.
    """
    module = importlib.import_module("cuda.core")
    if not hasattr(module, "Program"):
        module = importlib.import_module("cuda.core.experimental")
    return module


def _compiled(source: str, macros: tuple[tuple[str, int], ...], arch: str) -> bytes:
    core = cuda_core()
    defined = [(name, str(value)) for name, value in macros]
    options = core.ProgramOptions(
        name="lookalike",
        arch=arch,
        std="c++17",
        define_macro=defined,
        device_as_default_execution_space=True,  # generic lambdas in kernels run on the device
    )
    return bytes(core.Program(source, "c++", options).compile("cubin").code)


def _compiler_version() -> tuple[int, ...]:
    _, *version = importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion()
    return tuple(version)


def _argument(value: Any) -> Any:
    return value.data_ptr() if isinstance(value, torch.Tensor) else value or 0
