"""Expressions in a .pt2, which PyTorch evaluates: sizes through sympy, guards as Python. Only arithmetic may pass."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from wavefit.errors import InputError

MENDED = "save it again from the module with torch.export.save (PyTorch 2.9 or newer), or give package.module:factory"

# Names of sympy and torch.utils._sympy.functions that serialized sizes use: all of them only calculate.
_NAMES = """
    Symbol Integer Float Rational Add Mul Pow Mod Min Max Abs Identity Eq Ne Lt Le Gt Ge And Or Not floor ceiling
    Piecewise Equality Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan FloorDiv ModularIndexing Where
    PythonMod CleanDiv CeilDiv CeilToInt FloorToInt LShift RShift PowByNatural FloatPow FloatTrueDiv IntTrueDiv ToFloat
    IsNonOverlappingAndDenseIndicator TruncToFloat TruncToInt RoundToInt RoundDecimal
"""
_SIZE_FUNCTIONS = frozenset(_NAMES.split())
# What torch.utils._sympy.printers.PythonPrinter writes.
_GUARD_FUNCTIONS = frozenset(("min", "max", "abs", "round", "PythonMod", "IsNonOverlappingAndDenseIndicator"))
_MATH = re.compile(r"\bmath\.[a-z]\w*|\btorch\._?sym_\w+")
_INPUT = re.compile(r"\bL(\['[A-Za-z0-9_.-]+'\]|\[\d+\])+(\.(size|stride|storage_offset)\(\)(\[\d+\])?)?")
"""An input, or a size of it, as guards call it: ``L['x'].size()[0]``."""

_GROWING = ("Pow", "PowByNatural", "FloatPow", "LShift")
_MOST_GROWTH = 4096  # 9**9**9 alone would fill the memory
_NODES = (
    *(ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.IfExp),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)


def check_size(text: Any) -> None:
    """Raises:
    InputError: a size is more than arithmetic on symbols.
    """
    _check(text, text, _SIZE_FUNCTIONS)


def check_guard(text: Any) -> None:
    """Raises:
    InputError: a guard is more than arithmetic on sizes of inputs.
    """
    _check(text, _MATH.sub("abs", _INPUT.sub("s", text)), _GUARD_FUNCTIONS)


def _check(shown: Any, text: Any, functions: frozenset[str]) -> None:
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, TypeError, MemoryError) as error:
        raise InputError(f"a size in it is no expression: {str(shown)[:80]!r}", MENDED) from error
    if _growth(tree) > _MOST_GROWTH or not all(_is_arithmetic(node, functions) for node in ast.walk(tree)):
        raise InputError(f"a size in it is no arithmetic: {str(shown)[:80]!r}", MENDED)


def _is_arithmetic(node: ast.AST, functions: frozenset[str]) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in functions
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.fullmatch(r"[A-Za-z_]\w*", node.value) is not None
    return isinstance(node, _NODES)


def _growth(node: ast.AST) -> float:
    """The product of nested exponents; infinite where one is not a constant of 0 to 64."""
    inner = max(map(_growth, ast.iter_child_nodes(node)), default=1.0)
    by: ast.AST
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        by = node.right
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _GROWING:
        by = node.args[1] if len(node.args) == 2 else node
    else:
        return inner
    if isinstance(by, ast.Constant) and isinstance(by.value, (int, float)) and 0 <= by.value <= 64:
        return inner * max(1.0, by.value)
    return math.inf
