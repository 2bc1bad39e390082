"""Make one input of the comparisons from its source, and say whether it is what the committed results were made on.

python -m benchmarks.prepare NAME SOURCE FOLDER, such as
python -m benchmarks.prepare debian Translation-en.xz inputs
"""

import argparse
import sys
from pathlib import Path

from benchmarks.prepare.inputs import INPUTS, check, make


def main() -> int:
    """Run the command; 1 where the outcome is not what the committed results were made on."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prepare", description=__doc__)
    listed = "; ".join(f"{name}: {each.about}" for name, each in INPUTS.items())
    parser.add_argument("name", choices=INPUTS, help=listed)
    parser.add_argument("source", type=Path, help="what it is made from, as docs/results.md says")
    parser.add_argument("folder", type=Path, help="where it is put")
    arguments = parser.parse_args()
    made = make(arguments.name, arguments.source, arguments.folder)
    print(f"Written: {made}")
    said, is_same = check(arguments.name, arguments.folder)
    print(said)
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
