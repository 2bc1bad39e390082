"""`lookalike export`: from a finished run to a folder that other libraries load, and to the Hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from lookalike.cli.parsing import Flag, Hint, Positional, parse


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `lookalike export`."""

    run: Positional[Path]
    """Folder of a finished run."""
    out: Positional[Path]
    """Folder to write."""
    format: Literal["auto", "sentence-transformers", "timm", "transformers", "safetensors"] = "auto"
    """Library that will load the model; auto chooses by the encoder, and safetensors writes the weights alone."""
    force: Flag = False
    """Overwrite OUT, if it is an exported model."""
    push_to_hub: Annotated[str | None, Hint(value="REPO")] = None
    """Upload OUT to this repository of the Hugging Face Hub, such as me/my-model."""
    private: bool = True
    """Make a repository that does not exist yet a private one."""


def main(args: list[str]) -> None:
    """Write the trained model of a run as its library loads it, with a model card, ready for the Hugging Face Hub."""
    options = parse(Options, args, "export", main.__doc__)
    if not options.private and options.push_to_hub is None:
        raise ValueError("--no-private belongs to --push-to-hub, which was not given.")
    from lookalike.training.export import export_model

    out = options.out

    def written(name: str) -> None:
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        print(f"Written: {out} ({name}, {size / 1e6:,.1f} MB); its README.md is the model card.", flush=True)

    export_model(
        options.run,
        out,
        format=options.format,
        force=options.force,
        push_to_hub=options.push_to_hub,
        private=options.private,
        on_written=written,
    )
    if options.push_to_hub is not None:
        print(f"Uploaded: {options.push_to_hub}{' (private, if it is new)' if options.private else ''}")
