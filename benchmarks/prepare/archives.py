"""Make inputs that only need unpacking or copying."""

import shutil
import zipfile
from pathlib import Path

from lookalike.data.glyphs import load_glyphs


def unpacked(archive: Path, output: Path) -> None:
    """Unpack the folder of the output's name from a zip file, whole or not at all.

    Raises:
        ValueError: The archive has no such folder.
    """
    partial = output.with_name(f"{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    with zipfile.ZipFile(archive) as file:
        members = [name for name in file.namelist() if name.startswith(f"{output.name}/")]
        if not members:
            raise ValueError(f"{archive} has no folder {output.name}.")
        file.extractall(partial, members)
    (partial / output.name).rename(output)
    partial.rmdir()


def glyphs(source: Path, output: Path) -> None:
    """Copy a file of glyphs, after checking that it can be read."""
    load_glyphs(source)
    shutil.copyfile(source, output)
