"""The runtime where only the base install is: modules of every other distribution are not to be found."""

import json
import re
import subprocess
import sys
from importlib.metadata import distribution, packages_distributions

from tests.ship.make import bundle_of, choice

BARRED = """
import json, sys
from importlib.machinery import PathFinder

barred, find = frozenset(json.loads(sys.argv[1])), PathFinder.find_spec
PathFinder.find_spec = lambda name, *where: None if name.partition(".")[0] in barred else find(name, *where)
import torch
from torch.nn import functional
from tunefarm.runtime import PlanBook, apply

book = PlanBook.open(sys.argv[2], allow_unsigned=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
x = torch.randn(2, 8)
with torch.no_grad():
    expected = model(x)
    apply(model, book)
    assert torch.equal(model(x), expected)
    w = torch.randn(4, 8)
    assert torch.equal(book.linear(x, w), functional.linear(x, w))
    assert book.misses(sys.argv[3]) > 0
print(book.counters.steps["torch"], *(book.explain(e.problem) for e in book.bundle.manifest.entries))
"""


def base_install():
    """The distributions that `pip install tunefarm` brings, by their normal names."""
    found, wanted = set(), ["tunefarm"]
    while wanted:
        name = normal(wanted.pop())
        if name in found:
            continue
        found.add(name)
        for requirement in distribution(name).requires or ():
            what, _, condition = requirement.partition(";")
            if "extra" not in condition and is_installed(what):
                wanted.append(re.match(r"[\w.-]+", what)[0])
    return found


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def is_installed(requirement):
    try:
        distribution(re.match(r"[\w.-]+", requirement)[0])
    except ModuleNotFoundError:
        return False
    return True


def test_a_book_serves_where_only_the_base_install_is(tmp_path):
    base = base_install()
    owners = packages_distributions()
    barred = sorted(name for name, owned_by in owners.items() if not {normal(owner) for owner in owned_by} & base)
    assert {"ray", "pyarrow", "duckdb", "click", "pydantic", "yaml", "rich", "psutil"} <= set(barred)
    path = tmp_path / "one.bundle"
    path.write_bytes(bundle_of([choice(8)], keys=()))
    done = subprocess.run(
        [sys.executable, "-c", BARRED, json.dumps(barred), str(path), str(tmp_path / "misses.yaml")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 ")
    assert "bundle: no plan" in done.stdout
