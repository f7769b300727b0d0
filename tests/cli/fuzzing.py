"""Commands as nobody should type them, and what must hold of every answer."""

import contextlib
import io
import os
import random
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from tunefarm.cli import main
from tunefarm.cli.app import EXIT_CODES

ROOT = Path(__file__).parents[2]
JOBS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "jobs").glob("*.yaml"))}
EXAMPLES = int(os.environ.get("TUNEFARM_FUZZ_EXAMPLES", "40"))
"""Of each kind of input; `scripts/fuzz` asks for thousands."""

ODD = (
    *(
        "",
        " ",
        "\t",
        "\n",
        "\0",
        "\x1b[2J",
        "\u202e",
        "\ufeff",
        "\U0001f600",
        "é",
        "\ud800",
        "'",
        '"',
        "\\",
        "%s",
        "{}",
    ),
    *(
        "-1",
        "0",
        "1e999",
        ".nan",
        ".inf",
        "99999999999999999999999",
        "0x",
        "4kk",
        "1_000",
        "true",
        "null",
        "~",
        "2**63",
    ),
    *("*a", "&a x", "!!python/object:os.system x", "<<: *a", "- - - -", "[[[[", "}}}}", ": :", "? ", "| ", "> ", "---"),
    *("where: rows", "where: 'a && ('", "where: \"m > 1 ? 'a' : 2\"", "where: m / 0 > 1", "zip: {m: [1, 2], n: [1]}"),
    *("include: nowhere.yaml", "include: .", "include: /dev/zero", "name: ../../x", "op: [matmul]", "m: {a: 1}"),
    *("m: [" + "1, " * 2000 + "2]", "x" * 5000, "9" * 5000, "a: " * 300, "[" * 300),
)
"""Words that have broken programs."""


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


def ask(*args: str) -> Answer:
    """Run a command here. Whatever it is asked, it answers in order: a known code, and words where it refuses."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(args)
    answer = Answer(code, out.getvalue(), err.getvalue())
    assert code in EXIT_CODES, answer
    assert code != 1, answer
    assert "Traceback" not in answer.err, answer
    assert "internal error" not in answer.err, answer
    if code not in (0, 3):
        assert answer.err.strip(), answer
    assert "\x1b" not in answer.err, answer
    return answer


def files_of(folder: Path) -> dict[str, bytes]:
    """Everything in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def mutated(text: str, seed: int, changes: int) -> str:
    """A text with some lines and words changed, doubled, dropped or put elsewhere."""
    rng = random.Random(seed)
    lines = text.split("\n")
    for _ in range(changes):
        place = rng.randrange(len(lines))
        line = lines[place]
        match rng.randrange(9):
            case 0:
                lines.insert(place, rng.choice(lines))
            case 1 if len(lines) > 1:
                del lines[place]
            case 2:
                lines[place] = line[: rng.randrange(len(line) + 1)]
            case 3:
                at = rng.randrange(len(line) + 1)
                lines[place] = line[:at] + rng.choice(ODD) + line[at:]
            case 4:
                key, colon, _ = line.partition(":")
                lines[place] = f"{key}{colon} {rng.choice(ODD)}"
            case 5:
                lines[place] = " " * rng.randrange(9) + line.lstrip()
            case 6:
                words = line.split(" ")
                words[rng.randrange(len(words))] = rng.choice(ODD)
                lines[place] = " ".join(words)
            case 7:
                lines.insert(place, " " * rng.randrange(9) + rng.choice(ODD))
            case _:
                other = rng.randrange(len(lines))
                lines[place], lines[other] = lines[other], line
    return "\n".join(lines)


def broken(data: bytes, seed: int, changes: int) -> bytes:
    """Bytes with some changed, dropped or doubled."""
    rng = random.Random(seed)
    found = bytearray(data)
    for _ in range(changes):
        place = rng.randrange(len(found) + 1)
        match rng.randrange(4):
            case 0:
                found[place:place] = rng.randbytes(rng.randrange(1, 5))
            case 1:
                del found[place : place + rng.randrange(1, 30)]
            case 2:
                found[place : place + 1] = rng.choice(ODD).encode("utf-8", "surrogatepass")
            case _:
                found[place:place] = found[rng.randrange(len(found) + 1) :][:50]
    return bytes(found)


seeds = st.integers(0, 2**64)
words = st.sampled_from(ODD) | st.text(max_size=12)

_SQL = (
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "trials",
        "winners",
        "plans",
        "targets",
        "proposals",
        "*",
        "name",
        "time_us",
        "blocks",
    ),
    *(
        "AND",
        "OR",
        "NOT",
        "(",
        ")",
        ",",
        "=",
        "<",
        "'a'",
        "1",
        "NULL",
        "count(*)",
        "min(time_us)",
        "GROUP BY",
        "LIMIT 3",
    ),
    *(
        "ORDER BY",
        "JOIN",
        "USING (problem)",
        "UNION ALL",
        "WITH x AS",
        "AS",
        ";",
        "--",
        "/*",
        "$1",
        "?",
        "unnest(blocks)",
    ),
    *(
        "read_csv('/etc/passwd')",
        "'/etc/passwd'",
        "COPY",
        "TO",
        "ATTACH",
        "INSTALL httpfs",
        "PRAGMA version",
        "CREATE TABLE",
    ),
    *(
        "INSERT INTO",
        "DROP",
        "getenv('HOME')",
        "glob('/*')",
        "json_extract(knobs, '$.a')",
        "cast(name AS int)",
        "sum(name)",
    ),
)
sql = st.lists(st.sampled_from(_SQL) | words, min_size=1, max_size=12).map(lambda w: "SELECT " + " ".join(w)) | words
