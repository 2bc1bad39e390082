"""Make one input of the comparisons from its source, and check that the committed results were made with the same.

python -m benchmarks.prepare NAME SOURCE FOLDER, such as
python -m benchmarks.prepare debian Translation-en.xz inputs
"""

import argparse
import sys
from pathlib import Path

from benchmarks.prepare.inputs import INPUTS, check, make


def main() -> int:
    """Run the command; return 1 if the committed results were made with something else."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prepare", description=__doc__)
    listed = "; ".join(f"{name}: {each.about}" for name, each in INPUTS.items())
    parser.add_argument("name", choices=INPUTS, help=listed)
    parser.add_argument("source", type=Path, help="its source, as docs/results.md says")
    parser.add_argument("folder", type=Path, help="folder to write it to")
    arguments = parser.parse_args()
    made = make(arguments.name, arguments.source, arguments.folder)
    print(f"Written: {made}")
    said, is_same = check(arguments.name, arguments.folder)
    print(said)
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
