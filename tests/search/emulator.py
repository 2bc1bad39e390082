"""The CUDA kernels on the CPU, compiled as C++ for an emulator of threads and warps."""

import ctypes
import os
import re
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path

import torch

from lookalike.search import cuda, cuda_plan, cuda_search, nvrtc

HERE = Path(__file__).parent
NAMES = ("prepare", "draw", "survey", "survey_marked", "limits", "filter", "order", "repair")
# Small stages, so that short searches have many.
HOPPER_SHAPES = {words: cuda.HopperShape(3 if words % 3 == 0 else 2, 1, 1, 256) for words in cuda.SHAPES}
HOPPER_SHAPES[16] = cuda.HopperShape(2, 2, 2, 512)
COMPILER = shutil.which("g++")
# The address sanitizer watches the memory of kernels if the process runs with it; it cannot follow coroutines' stacks.
CHECKED = ["-fsanitize=address", "--param", "asan-stack=0"] if "libasan" in os.environ.get("LD_PRELOAD", "") else []
# Instructions that the kernels name, and what does the same here.
BOTH_KINDS = (("{ .reg .pred differ", "if (x != y) top = max(top, value);"), ("lop3", "any = x | y | z;"))
SIGNS = (("mma", "multiply_add_emulated(sum, a, b0, b1);"), ('" : "+l"', ";"))


class EmulatedKernels:
    """Stands in for `Kernels`, and counts what a search does beside its products."""

    backwards = False  # whether the last thread of a block goes first

    def __init__(self, library):
        self.library = library
        self.repaired = 0  # queries searched again
        self.examined = 0  # hits of scans that were looked up

    def launch(self, name, grid, block, *arguments, shared=0):
        if name == "repair":
            self.repaired += int(arguments[6][0])
        ctypes.c_longlong.in_dll(self.library, "emulated_backwards").value = self.backwards
        words = (ctypes.c_longlong * len(arguments))(*map(_word, arguments))
        getattr(self.library, f"emulated_{name}")(*grid, block, ctypes.c_longlong(shared), words)
        examined = ctypes.c_longlong.in_dll(self.library, "emulated_examined")
        self.examined += examined.value
        examined.value = 0


def _word(value):
    if isinstance(value, float):
        return struct.unpack("q", struct.pack("d", value))[0]
    return nvrtc._argument(value)


@cache
def emulated_kernels(macros, folder):
    sources = Path(nvrtc.__file__).parent
    stand_ins = {"warpgroup.cu": HERE / "warpgroup.hpp", "bytes.cu": HERE / "bytes.hpp"}
    files = [stand_ins.get(name, sources / name) for name in nvrtc.sources_of(macros)]
    source = "\n".join(file.read_text() for file in files)
    source = source.replace("extern __shared__ __align__(128) i64 room[];", "i64* room = dynamic_memory;")
    for instruction, same in (*BOTH_KINDS, *(SIGNS if "hamming.cu" in nvrtc.sources_of(macros) else ())):
        source, found = re.subn(rf'asm\("{re.escape(instruction)}.*?\);\n', same + "\n", source, flags=re.DOTALL)
        assert found == 1
    looked_up = "u32 kept = valid, slots[COUNT];"
    assert source.count(looked_up) == 1
    source = source.replace(looked_up, looked_up + " emulated_examined += __popc(valid);")
    lines = [f'#include "{HERE / "emulator.hpp"}"', source, *(f"EMULATED({name})" for name in NAMES)]
    name = "_".join(str(value) for _, value in macros)
    path = Path(folder) / f"{name}.cpp"
    path.write_text("\n".join(lines))
    defined = [f"-D{macro}={value}" for macro, value in macros]
    options = ["-std=c++20", "-O2", "-march=native", "-U_FORTIFY_SOURCE", "-w", "-shared", "-fPIC", *CHECKED, *defined]
    command = [COMPILER, *options, path, "-o", path.with_suffix(".so")]
    subprocess.run(command, check=True)
    return EmulatedKernels(ctypes.CDLL(path.with_suffix(".so")))


def install(monkeypatch, folder, capability=(8, 0)):
    """Let the `cuda` backend run here: tensors of the CPU, emulated kernels."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(cuda, "HOPPER_SHAPES", HOPPER_SHAPES)
    monkeypatch.setattr(cuda, "HOPPER_FROM", dict.fromkeys(cuda.SHAPES, 0))
    monkeypatch.setattr(cuda_search, "load_kernels", lambda macros, _: emulated_kernels(macros, folder))
    monkeypatch.setattr(cuda_plan, "fits", lambda _: False)
    monkeypatch.setattr(cuda_plan, "affordable", lambda _: 1 << 28)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: type("", (), {"multi_processor_count": 2})())
