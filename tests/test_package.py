"""What users install: the wheel holds the package and nothing else, and the documentation says what it declares."""

import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

import lookalike
from benchmarks import installing

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
URL = "https://github.com/lookalike-ml/lookalike"


def built(builder, folder):
    (path,) = builder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return path


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path):
    source = ROOT / "src"
    kept = [path for path in source.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".nbi", ".nbc")]
    expected = {path.relative_to(source).as_posix() for path in kept if ".egg-info" not in str(path)}
    with zipfile.ZipFile(built(WheelBuilder, tmp_path)) as wheel:
        info = f"lookalike-{lookalike.__version__}.dist-info/"
        names = {name for name in wheel.namelist() if not name.startswith(info)}
        metadata = wheel.read(f"{info}METADATA").decode()
        assert f"{info}licenses/LICENSE" in wheel.namelist()
        assert b"lookalike = lookalike.cli:main" in wheel.read(f"{info}entry_points.txt")
    assert names == expected
    assert {"lookalike/py.typed", "lookalike/data/dejavu.npz", "lookalike/data/dejavu_license.txt"} <= names
    suffixes = {Path(name).suffix for name in names}
    assert suffixes == {".py", ".typed", ".cu", ".html", ".css", ".js", ".svg", ".npz", ".txt"}
    assert f"Version: {lookalike.__version__}" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert "License-Expression: Apache-2.0" in metadata


def test_the_description_links_to_the_repository(tmp_path):
    with zipfile.ZipFile(built(WheelBuilder, tmp_path)) as wheel:
        description = wheel.read(f"lookalike-{lookalike.__version__}.dist-info/METADATA").decode().partition("\n\n")[2]
    readme = (ROOT / "README.md").read_text()
    assert "](https://raw.githubusercontent.com/lookalike-ml/lookalike/main/docs/pictures/training.svg)" in description
    assert description.count("](") == readme.count("](")
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert all(link.startswith(("https://raw.githubusercontent.com/lookalike-ml/", URL)) for link in links)


def test_the_sdist_holds_what_the_tests_need(tmp_path):
    with tarfile.open(built(SdistBuilder, tmp_path)) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = ["pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "mkdocs.yml", "constraints.txt"]
    assert {*wanted, "tests/conftest.py", "benchmarks/tables.py", "docs/index.md", "src/lookalike/py.typed"} <= names
    assert not [name for name in names if re.search(r"__pycache__|\.pyc$|(^|/)(runs|site|inputs)/", name)]


def test_the_tests_that_run_with_the_lowest_versions_are_there():
    named = re.findall(r"tests/[\w./]+", (ROOT / ".ci" / "lowest").read_text())
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_lowest_versions_that_are_tested_are_the_bounds():
    declared = map(Requirement, PROJECT["dependencies"])
    bounds = {each.name: str(each.specifier).removeprefix(">=") for each in declared}
    lines = [line for line in (ROOT / "constraints-lowest.txt").read_text().splitlines() if not line.startswith("#")]
    tested = {Requirement(line).name: str(Requirement(line).specifier).removeprefix("==") for line in lines}
    assert set(tested) == set(bounds)
    for name, bound in bounds.items():
        assert tested[name] == bound or tested[name].startswith(f"{bound}."), name


def test_the_documentation_names_every_extra():
    extras = set(PROJECT["optional-dependencies"])
    assert extras == {*installing.USES, *installing.DEVELOPMENT}
    page, contributing = ((ROOT / name).read_text() for name in ("docs/install.md", "CONTRIBUTING.md"))
    assert {name for name in installing.USES if f"`lookalike[{name}]`" in page} == set(installing.USES)
    assert {name for name in installing.DEVELOPMENT if name in contributing} == set(installing.DEVELOPMENT)


def test_every_extra_that_is_named_exists():
    extras = set(PROJECT["optional-dependencies"])
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py"), ROOT / "Dockerfile"]
    for path in texts:
        for found in re.findall(r"lookalike\[([a-z,-]+)\]", path.read_text()):
            assert set(found.split(",")) <= extras, f"{path} names {found}"


def test_all_holds_every_extra_of_any_machine():
    (everything,) = (Requirement(each) for each in PROJECT["optional-dependencies"]["all"])
    assert everything.extras == set(installing.USES) - {"all", "cuda", "notebooks", "ray"}


@pytest.mark.parametrize("url", PROJECT["urls"].values())
def test_urls_are_those_of_one_repository(url):
    assert url.startswith(URL)
    *_, path = url.removeprefix(URL).partition("/main/")
    assert (ROOT / path).exists()


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (str(citation["version"]), citation["license"]) == (lookalike.__version__, PROJECT["license"])
    assert citation["repository-code"] == URL
    (paper,) = citation["references"]
    assert paper["title"] in (ROOT / "README.md").read_text().replace("\n", " ")


def test_python_versions_are_the_same_everywhere():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    tested = workflow["jobs"]["everything"]["strategy"]["matrix"]["python"]
    declared = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", each)]
    assert tested == declared
    assert PROJECT["requires-python"] == f">={tested[0]}"
