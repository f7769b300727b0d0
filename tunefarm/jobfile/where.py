"""`where:` conditions: expressions over a problem's fields, in a small part of CEL.

CEL (Common Expression Language) has no way to reach files, network or Python. Its macros over lists (`map`, `all`) can
still take any time and memory, and the names that they bind hide from CEL's own analysis of an expression: so the text
is read into tokens first, and only operators, the problem's fields and a few functions whose cost is that of reading
their arguments reach CEL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from tunefarm.jobfile.fields import FieldInfo
from tunefarm.jobfile.wording import clip, closest, did_you_mean, listed

MAX_CHARACTERS: Final = 1000
"""Of all conditions of one entry together: they run once for each of up to 100,000 combinations."""

FUNCTIONS: Final = ("double", "int", "size", "string")
METHODS: Final = ("contains", "endsWith", "startsWith")

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
      | (?P<triple>'''|\"\"\")
      | (?P<string>'[^'\\\n]*'|"[^"\\\n]*")
      | (?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?(?P<unit>[A-Za-z_][A-Za-z0-9_]*)?)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<foreign>===|!==|\*\*|//|<>|&(?!&)|\|(?!\|)|=(?!=)|\^|~)
      | (?P<operator>&&|\|\||[=!<>]=|[-+*/%!<>()\[\],?:.])
      | (?P<unknown>.)""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)

_MENDS: Final = {
    "and": "write `&&`",
    "or": "write `||`",
    "not": "write `!`, as in `!(m > 1)`",
    "is": "write `==`",
    "if": "write `condition ? this : that`",
    "else": "write `condition ? this : that`",
    "True": "write `true`",
    "False": "write `false`",
    "None": "write `null`",
    "===": "write `==`",
    "!==": "write `!=`",
    "<>": "write `!=`",
    "=": "write `==`",
    "&": "write `&&`",
    "|": "write `||`",
    "**": "write the product out, as in `m * m`",
    "//": "it begins a comment; `/` between whole numbers drops the remainder",
}


class ConditionError(Exception):
    """A condition that can't be used; the text says why and how to mend it."""


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int
    """Character in the expression, from 1."""


class Condition:
    """One condition, checked and compiled.

    Args:
        text: the expression.
        fields: the fields of the problem, which are its variables.

    Raises:
        ConditionError: it can't be used.
    """

    def __init__(self, text: str, fields: Mapping[str, FieldInfo]) -> None:
        import cel  # a third of a second, and most jobs have no condition

        tokens = list(_tokens(text))
        self._variables = {t.text for t in tokens if t.kind == "word" and t.text in fields}
        _check_names(tokens, fields)
        _check_words(tokens, fields)
        try:
            self._program = cel.compile(text)
        except ValueError as error:
            raise ConditionError(_syntax_message(str(error), tokens)) from None

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it holds, given the value of every field of a problem.

        Raises:
            ConditionError: it gives neither true nor false for them.
        """
        try:
            result = self._program.execute({name: _plain(values[name]) for name in self._variables})
        except ArithmeticError as error:
            reason = str(error).removesuffix(" in CEL expression").rstrip(".")
            raise ConditionError(f"{reason[:1].lower()}{reason[1:]}") from None
        except (ValueError, RuntimeError, TypeError, LookupError):
            raise ConditionError(
                "its parts don't go together; mind that whole numbers and fractions mix only as in `double(m) * alpha`,"
                " and that a chain is written `1 < m && m < 8`"
            ) from None
        if not isinstance(result, bool):
            raise ConditionError(f"it gives {clip(repr(result))}, neither true nor false; compare it with something")
        return result


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, StrEnum) else value


def _tokens(text: str) -> Iterator[_Token]:
    if not text.strip():
        raise ConditionError("the expression is empty")
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        token = _Token(kind, match.group(), match.start() + 1)
        if match.group() in _MENDS:
            raise ConditionError(f"`{token.text}` at character {token.at}: {_MENDS[token.text]}")
        if match.group("unit"):
            raise ConditionError(f"`{token.text}` at character {token.at}: numbers are written out here, as in 4096")
        if kind in {"unknown", "foreign", "triple"}:
            raise ConditionError(f"`{clip(token.text)}` at character {token.at} has no meaning here")
        if kind != "space":
            yield token


def _check_names(tokens: list[_Token], fields: Mapping[str, FieldInfo]) -> None:
    """Every word must be a field, a literal, or one of the allowed functions in its place."""
    ends = [*tokens[1:], _Token("end", "", 0)]
    starts = [_Token("end", "", 0), *tokens[:-1]]
    for before, token, after in zip(starts, tokens, ends, strict=True):
        if token.kind == "string" and before.kind in {"word", "string"} and before.text != "in":
            raise ConditionError(f"{clip(token.text)} at character {token.at}: an operator is missing before it")
        if token.kind != "word" or token.text in {"true", "false", "null", "in"}:
            continue
        place = f"`{token.text}` at character {token.at}"
        if before.text == ".":
            if token.text not in METHODS or after.text != "(":
                raise ConditionError(f"{place}: after a dot there may be only {listed(METHODS)} and its `(...)`")
        elif after.text == "(":
            if token.text not in FUNCTIONS:
                raise ConditionError(f"{place}: no such function; there are {listed(FUNCTIONS)}")
        elif token.text not in fields:
            raise ConditionError(f"{place}: {_unknown_variable(token.text, fields)}")


def _unknown_variable(word: str, fields: Mapping[str, FieldInfo]) -> str:
    if near := closest(word, fields):
        return f"no such field; did you mean {' or '.join(f'`{n}`' for n in near)}?"
    values = {choice for info in fields.values() for choice in info.choices or ()}
    if word in values:
        return f"no such field; the value is written with quotes, '{word}'"
    return f"no such field; there are {listed(fields)}"


def _check_words(tokens: list[_Token], fields: Mapping[str, FieldInfo]) -> None:
    """A text that a field can never equal is a slip: the condition would quietly be always false, or always true."""
    for i, token in enumerate(tokens):
        info = fields.get(token.text) if token.kind == "word" else None
        if info is None or info.choices is None:
            continue
        for text in _compared_with(tokens, i):
            word = text.text[1:-1]
            if word not in info.choices:
                hint = did_you_mean(word, info.choices)
                place = f"{clip(text.text)} at character {text.at}"
                raise ConditionError(f"{place}: `{info.name}` is one of {listed(info.choices)}{hint}")


def _compared_with(tokens: list[_Token], i: int) -> Iterator[_Token]:
    """The texts that the field at `i` is compared with by `==`, `!=`, or `in [...]`."""
    following = [*tokens[i + 1 : i + 3], _Token("end", "", 0), _Token("end", "", 0)]
    preceding = tokens[max(0, i - 2) : i]
    if following[0].text in {"==", "!="} and following[1].kind == "string":
        yield following[1]
    if len(preceding) == 2 and preceding[1].text in {"==", "!="} and preceding[0].kind == "string":
        yield preceding[0]
    if following[0].text == "in" and following[1].text == "[":
        for token in tokens[i + 3 :]:
            if token.text == "]":
                break
            if token.kind == "string":
                yield token


def _syntax_message(problem: str, tokens: list[_Token]) -> str:
    for first, second in pairwise(tokens):
        if first.text == "in" and second.text == "(":
            return f"`(` at character {second.at}: a list is written in brackets, as in `m in [1, 8]`"
    last = tokens[-1]
    if "<EOF>" in problem and (last.text == "in" or (last.kind == "operator" and last.text not in {")", "]"})):
        return f"it ends with `{last.text}`: write what should follow, as in `m > 1`"
    match = re.search(r"<input>:(\d+):(\d+): (?:Syntax error: )?(.*)", problem)
    if match is None:
        return f"not an expression: {clip(problem)}"
    reason = re.sub(r" (?:expecting|at) .*", "", match.group(3)).replace("'<EOF>'", "end of the expression")
    return f"not an expression: {reason} (line {match.group(1)}, character {match.group(2)})"
