"""The language of search-space files: integer and text expressions, without `eval`.

Python's own parser reads the text; only the node types below are accepted, and each becomes a
closure. A closure takes numbers and strings, or NumPy arrays of them (one entry a candidate), so
that one definition decides a single config and filters a million. `and`, `or` and `if` look only at
the candidates that reach them, as in Python: `step > 0 and k % step == 0` never divides by zero.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from autotune.errors import SpaceError

Environment = Mapping[str, Any]
Closure = Callable[[Environment], Any]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_DIVISIONS = (operator.floordiv, operator.mod)
_SCALARS = frozenset({int, bool, str})
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
LANGUAGE = (
    "numbers, texts, names, + - * // %, comparisons, in, and, or, not, `x if y else z`, "
    "min(), max(), ceil_div()"
)


class Expression:
    """A parsed expression.

    Attributes:
        text: As written.
        names: The names that it reads.

    Raises:
        SpaceError: not an expression of the language; the message shows the text and the fault.
    """

    __slots__ = ("_closure", "names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        names: set[str] = set()
        try:
            tree = ast.parse(text.strip(), mode="eval")
            self._closure = _compile(tree.body, text, names)
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise SpaceError(f"cannot parse the expression {text!r}: {error}") from None
        self.names = frozenset(names)

    def __call__(self, environment: Environment) -> Any:
        """The value: an int, a str or a bool, or an array of them.

        Raises:
            SpaceError: a division by zero, or values that do not fit the operator.
        """
        try:
            return self._closure(environment)
        except ZeroDivisionError:
            raise SpaceError(f"the expression {self.text!r} divides by zero") from None
        except (TypeError, ValueError) as error:
            raise SpaceError(f"the expression {self.text!r} fails: {error}") from None

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def is_array(value: Any) -> bool:
    """Whether a value holds one entry a candidate."""
    if value.__class__ in _SCALARS:  # nearly all of them, thousands in a look-up
        return False
    # NumPy is not imported for a single config: `lookup` has 300 ms in all.
    return hasattr(value, "__array_interface__") and getattr(value, "ndim", 0) > 0


def _compile(node: ast.expr, text: str, names: set[str]) -> Closure:
    def sub(child: ast.expr) -> Closure:
        return _compile(child, text, names)

    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | str() as constant):
            return lambda environment: constant
        case ast.Name(id=name):
            names.add(name)
            return lambda environment: environment[name]
        case ast.BinOp(op=op) if type(op) in _BINARY:
            return _binary(_arithmetic(_BINARY[type(op)]), sub(node.left), sub(node.right))
        case ast.BinOp(op=ast.Div()):
            raise SpaceError(f"the expression {text!r} uses /; sizes are whole, write //")
        case ast.UnaryOp(op=ast.USub()):
            operand = sub(node.operand)
            return lambda environment: -operand(environment)
        case ast.UnaryOp(op=ast.Not()):
            operand = sub(node.operand)
            return lambda environment: _not(operand(environment))
        case ast.BoolOp(op=op):
            parts = [sub(value) for value in node.values]
            read = [_names(value) for value in node.values]
            return _and(parts, read) if isinstance(op, ast.And) else _or(parts, read)
        case ast.IfExp():
            test, body, orelse = sub(node.test), sub(node.body), sub(node.orelse)
            return _if(test, body, orelse, _names(node.body), _names(node.orelse))
        case ast.Compare():
            return _comparison(node, text, sub)
        case ast.Call(func=ast.Name(id="min" | "max" | "ceil_div" as name), keywords=[]):
            arguments = [sub(argument) for argument in node.args]
            if len(arguments) == 2:
                return _binary(_FUNCTIONS[name], *arguments)
            raise SpaceError(f"{name}() takes two arguments in the expression {text!r}")
    what = ast.unparse(node)
    raise SpaceError(f"{what!r} is not allowed in the expression {text!r}; allowed are {LANGUAGE}")


def _names(node: ast.expr) -> frozenset[str]:
    called = {id(child.func) for child in ast.walk(node) if isinstance(child, ast.Call)}
    return frozenset(
        child.id
        for child in ast.walk(node)
        if isinstance(child, ast.Name) and id(child) not in called
    )


def _binary(function: Callable[[Any, Any], Any], left: Closure, right: Closure) -> Closure:
    return lambda environment: function(left(environment), right(environment))


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Refuses texts, and fails on a zero divisor in arrays too, where NumPy only warns."""

    def compute(left: Any, right: Any) -> Any:
        if left.__class__ is int and right.__class__ is int:
            return function(left, right)
        for value in (left, right):
            if isinstance(value, str) or (is_array(value) and value.dtype.kind == "U"):
                raise TypeError("a text is not a number")
        if function in _DIVISIONS and is_array(right) and not right.all():
            raise ZeroDivisionError
        return function(left, right)

    return compute


_floor_div = _arithmetic(operator.floordiv)


def _ceil_div(left: Any, right: Any) -> Any:
    return -_floor_div(-left, right)


def _min(left: Any, right: Any) -> Any:
    if is_array(left) or is_array(right):
        import numpy as np

        return np.minimum(left, right)
    return min(left, right)


def _max(left: Any, right: Any) -> Any:
    if is_array(left) or is_array(right):
        import numpy as np

        return np.maximum(left, right)
    return max(left, right)


_FUNCTIONS = {"min": _min, "max": _max, "ceil_div": _ceil_div}


def _comparison(node: ast.Compare, text: str, sub: Callable[[ast.expr], Closure]) -> Closure:
    terms = [node.left, *node.comparators]
    checks: list[Closure] = []
    for left, op, right in zip(terms, node.ops, terms[1:], strict=False):
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.Tuple | ast.List):
                raise SpaceError(f"`in` needs a list of values in the expression {text!r}")
            members = [_binary(operator.eq, sub(left), sub(member)) for member in right.elts]
            found = _or(members, [_names(left) | _names(member) for member in right.elts])
            checks.append(found if isinstance(op, ast.In) else _inverse(found))
        elif type(op) in _COMPARE:
            checks.append(_binary(_COMPARE[type(op)], sub(left), sub(right)))
        else:
            raise SpaceError(f"{ast.unparse(node)!r} is not allowed in the expression {text!r}")
    if len(checks) == 1:
        return checks[0]
    return _and(checks, [_names(node)] * len(checks))


def _not(value: Any) -> Any:
    return ~_truth(value) if is_array(value) else not value


def _inverse(closure: Closure) -> Closure:
    return lambda environment: _not(closure(environment))


def _truth(array: Any) -> Any:
    return array if array.dtype == bool else array != 0


def _restricted(environment: Environment, names: frozenset[str], rows: Any) -> Environment:
    return {
        name: environment[name][rows] if is_array(environment[name]) else environment[name]
        for name in names
    }


def _and(parts: list[Closure], read: list[frozenset[str]]) -> Closure:
    pairs = list(zip(parts, read, strict=True))

    def evaluate(environment: Environment) -> Any:
        result: Any = True
        for part, names in pairs:
            if result is False:
                return False
            if result is True:
                value = part(environment)
                result = _truth(value).copy() if is_array(value) else bool(value)
            else:
                rows = result.nonzero()[0]
                if len(rows) == 0:
                    return result
                value = part(_restricted(environment, names, rows))
                result[rows] = _truth(value) if is_array(value) else bool(value)
        return result

    return evaluate


def _or(parts: list[Closure], read: list[frozenset[str]]) -> Closure:
    negated = _and([_inverse(part) for part in parts], read)
    return lambda environment: _not(negated(environment))


def _if(
    test: Closure,
    body: Closure,
    orelse: Closure,
    body_names: frozenset[str],
    orelse_names: frozenset[str],
) -> Closure:
    def evaluate(environment: Environment) -> Any:
        chosen = test(environment)
        if not is_array(chosen):
            return body(environment) if chosen else orelse(environment)
        import numpy as np

        chosen = _truth(chosen)
        if len(chosen) == 0:
            return chosen.astype(np.int64)
        parts = []
        for rows, branch, names in (
            (chosen.nonzero()[0], body, body_names),
            ((~chosen).nonzero()[0], orelse, orelse_names),
        ):
            if len(rows):
                parts.append((rows, branch(_restricted(environment, names, rows))))
        result = np.empty(len(chosen), dtype=np.result_type(*(np.asarray(v) for _, v in parts)))
        for rows, value in parts:
            result[rows] = value
        return result

    return evaluate
