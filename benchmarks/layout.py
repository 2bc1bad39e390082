"""Write the layout of the source for docs/design.md: every file with the first line of its docstring."""

import ast
from pathlib import Path

import lookalike

SOURCE = Path(lookalike.__file__).parent
OTHER_FILES = {".html": "Jinja2 template", ".css": "The style of the page"}


def _lines(folder: Path, depth: int) -> list[str]:
    lines = []
    for path in sorted(folder.iterdir(), key=lambda each: (each.is_dir(), each.name)):
        if path.is_dir() and not path.name.startswith("__"):
            summary = _summary(path / "__init__.py") if (path / "__init__.py").exists() else "templates of the page"
            lines += [_line(f"{path.name}/", summary, depth), *_lines(path, depth + 1)]
        elif path.suffix == ".cu":
            lines.append(_line(path.name, path.read_text().partition("\n")[0].removeprefix("// ").rstrip("."), depth))
        elif path.suffix in OTHER_FILES:
            lines.append(_line(path.name, OTHER_FILES[path.suffix], depth))
        elif path.suffix == ".py" and path.name != "__init__.py":
            lines.append(_line(path.name, _summary(path), depth))
    return lines


def _line(name: str, summary: str, depth: int) -> str:
    return f"{'  ' * depth + name:<28} {summary}"


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].rstrip(".:")


def _layout() -> str:
    return "\n".join(["```", "src/lookalike/", *_lines(SOURCE, 1), "```"])


TABLES = {"layout": _layout}
