"""Is a ``.pt2`` exported program free of code? Told from its archive, before PyTorch reads it.

What torch.export.load of PyTorch 2.13 does with a file (torch/export/pt2_archive/_package.py and
torch/_export/serde/serialize.py):

- a weight or constant marked ``use_pickle`` goes through torch.load(weights_only=False);
- ``data/constants/opaque_obj_*`` goes through pickle.loads, ``custom_obj_*`` through the TorchScript unpickler;
- ``data/weights/NAME.pt`` and ``data/constants/NAME.pt`` (older layout) and ``data/sample_inputs/NAME.pt`` are read
  with weights_only=True and, where that fails, again with weights_only=False;
- ``data/aotinductor/`` holds shared libraries, which are loaded;
- sizes that are expressions are evaluated: ``expr_str`` goes to sympy.sympify, which calls eval;
- a node's target is looked up by attributes from ``torch``, ``math`` or ``operator``, and called when the program runs:
  "torch.os.system" would be;
- the structure of inputs and outputs may name modules, which are imported.

torch.export.save of a plain module writes none of these but sample inputs that are tensors, sizes that are arithmetic,
and targets that are operators. Only such files pass. The layout of PyTorch 2.7 and before, pickles alone, does not.
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from wavefit.errors import InputError

_MENDED = "save it again from the module with torch.export.save (PyTorch 2.9 or newer), or give package.module:factory"
_MAX_JSON_BYTES = 1 << 30
_END_BYTES = 22  # the record that ends a zip file without a comment

_ALLOWED = re.compile(
    r"archive_format|archive_version|byteorder|version|\.data/version|\.data/serialization_id|\.format_version"
    r"|\.storage_alignment|models/model\.json|data/sample_inputs/model\.pt|extra/.*"
    r"|data/weights/(weight_\d+|model_weights_config\.json)"
    r"|data/constants/(tensor_\d+|model_constants_config\.json)"
)
_CODE = (
    (re.compile(r"data/aotinductor/"), "compiled code (AOTInductor)"),
    (re.compile(r"data/constants/(opaque|custom)_obj_"), "a pickled object"),
    (
        re.compile(r"(data/(weights|constants)/.*|serialized_.*)\.pt"),
        "pickled weights (PyTorch before 2.9)",
    ),
)
_TARGET = re.compile(
    r"torch\.ops\.(aten|prims|prim|quantized_decomposed|torchvision)\.(?!__)\w+(\.(?!__)\w+)?"
    r"|torch\.ops\.aten\.__i?(and|or|xor|lshift|rshift)__\.\w+"
    r"|torch\.ops\.higher_order\.(cond|while_loop|scan|associative_scan|map_impl|wrap_with_\w+|invoke_subgraph)"
    r"|torch\._?sym_\w+|math\.[a-z]\w*"
    # not call, attrgetter and methodcaller, with which a chain of nodes could reach anything
    r"|_operator\.(add|sub|mul|truediv|floordiv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_|not_|lshift|rshift|getitem)"
)
_OPENS_FILES = re.compile(
    r"\.from_file(\.|$)"
)  # aten::from_file maps a file, and makes it where it is missing
_SAFE_TREES = ("builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", None)

# Names of sympy and torch.utils._sympy.functions that serialized sizes use: all of them only calculate.
_FUNCTIONS = frozenset(
    (
        *(
            "Symbol",
            "Integer",
            "Float",
            "Rational",
            "Add",
            "Mul",
            "Pow",
            "Mod",
            "Min",
            "Max",
            "Abs",
            "Identity",
        ),
        *("Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "floor", "ceiling", "Piecewise"),
        *("Equality", "Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan"),
        *(
            "FloorDiv",
            "ModularIndexing",
            "Where",
            "PythonMod",
            "CleanDiv",
            "CeilDiv",
            "CeilToInt",
            "FloorToInt",
        ),
        *("LShift", "RShift", "PowByNatural", "FloatPow", "FloatTrueDiv", "IntTrueDiv", "ToFloat"),
        *("IsNonOverlappingAndDenseIndicator", "TruncToFloat", "TruncToInt", "RoundToInt", "RoundDecimal"),
    )
)
_GROWING = ("Pow", "PowByNatural", "FloatPow", "LShift")
_NODES = (
    *(ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.Tuple),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)


def check(path: Path) -> None:
    """Refuses a file that is no exported program, or whose reading or running could run code.

    Raises:
        InputError: naming the member of the archive, and why.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check(archive)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist", "check the path") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path} is no exported program: {error}", _MENDED) from error
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError(f"{path} is damaged: its description has another form", _MENDED) from error
    except (ValueError, RecursionError) as error:  # json's errors are ValueErrors
        raise InputError(f"{path} is damaged: {error}", _MENDED) from error
    except InputError as error:
        raise InputError(f"{path}: {error.what}", error.fix) from error


def _check(archive: zipfile.ZipFile) -> None:
    members = _members(archive)
    for name in members:
        _check_name(name)
    if "models/model.json" not in members:
        raise InputError("the archive holds no models/model.json, so no exported program", _MENDED)
    for kind in ("weights", "constants"):
        config = members.get(f"data/{kind}/model_{kind}_config.json")
        if config is not None:
            _check_payloads(_json(archive, config), kind)
    _check_program(_json(archive, members["models/model.json"]))
    if "data/sample_inputs/model.pt" in members:
        _check_samples(archive.read(members["data/sample_inputs/model.pt"]))


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members by their path below the archive's one folder."""
    _check_frame(archive)
    infos = archive.infolist()
    tops = {PurePosixPath(info.filename).parts[:1] for info in infos}
    if len(tops) != 1:
        raise InputError("the archive does not have one folder at its top", _MENDED)
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename.partition("/")[2]
        if name in members:
            raise InputError(f"the archive holds {name!r} twice", _MENDED)
        if info.compress_type != zipfile.ZIP_STORED:
            raise InputError(f"{name!r} is compressed, which torch.export.save never does", _MENDED)
        members[name] = info
    return members


def _check_frame(archive: zipfile.ZipFile) -> None:
    """Nothing before the first member or after the directory, where another reader might see another archive."""
    assert archive.fp is not None
    archive.fp.seek(0)
    start = archive.fp.read(4)
    archive.fp.seek(-_END_BYTES, io.SEEK_END)
    if start != b"PK\x03\x04" or archive.fp.read(4) != b"PK\x05\x06":
        raise InputError("the archive has other data before or after it", _MENDED)


def _check_name(name: str) -> None:
    for pattern, what in _CODE:
        if pattern.match(name):
            raise InputError(f"it holds {what} ({name}), and reading that runs code", _MENDED)
    if not _ALLOWED.fullmatch(name):
        raise InputError(f"it holds {name!r}, which is no part of an exported program", _MENDED)


def _json(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    if info.file_size > _MAX_JSON_BYTES:
        raise InputError(f"{info.filename} has {info.file_size} bytes, too many for a description", _MENDED)
    return json.loads(archive.read(info))


def _check_payloads(config: Any, kind: str) -> None:
    prefix = "weight_" if kind == "weights" else "tensor_"
    for name, payload in config["config"].items():
        if payload.get("use_pickle") is not False or not str(payload.get("path_name")).startswith(prefix):
            raise InputError(
                f"its {kind} {name!r} are pickled, and reading a pickle runs the code in it", _MENDED
            )


def _check_program(program: Any) -> None:
    for key, value in _entries(program):
        if key == "target" and isinstance(value, str):
            _check_target(value)
        elif key == "expr_str":
            _check_expression(value)
        elif key in ("in_spec", "out_spec") and isinstance(value, str) and value:
            _check_tree(json.loads(value)[1])
        elif key in ("as_custom_obj", "as_opaque_obj") and value:
            raise InputError("it uses a pickled object as a constant, and reading that runs code", _MENDED)


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value, however deep."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value.items()
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _check_target(target: str) -> None:
    if not _TARGET.fullmatch(target) or _OPENS_FILES.search(target):
        raise InputError(
            f"it calls {target!r}, which is none of PyTorch's own operators", "a program may call only those"
        )


def _check_expression(text: Any) -> None:
    """Sizes are evaluated by sympy: only arithmetic on symbols may get there."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, TypeError, MemoryError) as error:
        raise InputError(f"a size in it is no expression: {str(text)[:80]!r}", _MENDED) from error
    for node in ast.walk(tree):
        bad = not isinstance(node, _NODES) or _explodes(node)
        if isinstance(node, ast.Call):
            bad = bad or not (isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            bad = not re.fullmatch(r"[A-Za-z_]\w*", node.value)
        if bad:
            raise InputError(f"a size in it is no arithmetic: {text[:80]!r}", _MENDED)


def _explodes(node: ast.AST) -> bool:
    """A power or shift that is not by a small constant: 9**9**9 alone would fill the memory."""
    by: ast.AST | None = None
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        by = node.right
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _GROWING:
        by = node.args[1] if len(node.args) == 2 else node
    if by is None:
        return False
    return not (isinstance(by, ast.Constant) and isinstance(by.value, int) and 0 <= by.value <= 64)


def _check_tree(tree: Any) -> None:
    """The structure of the arguments: lists, tuples and dictionaries only, whose contexts name no modules."""
    if tree["type"] not in _SAFE_TREES or "__enum__" in str(tree["context"]):
        raise InputError(
            f"its inputs or outputs are of type {tree['type']!r}", "use tuples, lists and dictionaries"
        )
    for child in tree["children_spec"]:
        _check_tree(child)


def _check_samples(data: bytes) -> None:
    """PyTorch tries weights_only=True first: what passes that here is never unpickled freely there."""
    from wavefit.model.torch_source import attempt, require_torch

    torch = require_torch()
    with attempt() as tried:
        torch.load(io.BytesIO(data), weights_only=True)
    if data and tried.error is not None:
        raise InputError("its sample inputs are pickled objects, and reading those runs code", _MENDED)
