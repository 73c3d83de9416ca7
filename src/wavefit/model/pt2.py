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
- the structure of inputs and outputs may name modules, which are imported;
- names of tensors, of weights and of ``forward``'s arguments are pasted into Python source, which is executed
  (torch/fx/graph.py), and so are ``guards_code`` and the keys of input dictionaries (torch/export/_unlift.py).

torch.export.save of a plain module writes none of these but sample inputs that are tensors, sizes and guards that are
arithmetic, targets that are operators, and names that are names. Only such files pass. The layout of PyTorch 2.7 and
before, pickles alone, does not.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from wavefit.errors import InputError
from wavefit.model import pt2_expressions as expressions
from wavefit.model.foreign import attempt, require_torch
from wavefit.model.pt2_expressions import MENDED

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
# aten::from_file maps a file, and makes it where it is missing; aten::save writes one.
_OPENS_FILES = re.compile(r"\.(from_file|save)(\.|$)")
_NAME = re.compile(r"[A-Za-z0-9_]*")
_PATH = re.compile(r"[A-Za-z0-9_.-]*")  # "layers.0.weight"
_NAMES = {
    **dict.fromkeys(("name", "as_name"), _NAME),
    **dict.fromkeys(("parameter_name", "buffer_name", "tensor_constant_name"), _PATH),
}
"""Keys whose text becomes Python source."""
_SAFE_TREES = ("builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", None)


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
        raise InputError(f"{path} is no exported program: {error}", MENDED) from error
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError(f"{path} is damaged: its description has another form", MENDED) from error
    except (ValueError, RecursionError) as error:  # json's errors are ValueErrors
        raise InputError(f"{path} is damaged: {error}", MENDED) from error
    except InputError as error:
        raise InputError(f"{path}: {error.what}", error.fix) from error


def _check(archive: zipfile.ZipFile) -> None:
    members = _members(archive)
    for name in members:
        _check_name(name)
    if "models/model.json" not in members:
        raise InputError("the archive holds no models/model.json, so no exported program", MENDED)
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
        raise InputError("the archive does not have one folder at its top", MENDED)
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename.partition("/")[2]
        if name in members:
            raise InputError(f"the archive holds {name!r} twice", MENDED)
        if info.compress_type != zipfile.ZIP_STORED:
            raise InputError(f"{name!r} is compressed, which torch.export.save never does", MENDED)
        members[name] = info
    return members


def _check_frame(archive: zipfile.ZipFile) -> None:
    """Nothing before the first member or after the directory, where another reader might see another archive."""
    assert archive.fp is not None
    archive.fp.seek(0)
    start = archive.fp.read(4)
    archive.fp.seek(-_END_BYTES, io.SEEK_END)
    if start != b"PK\x03\x04" or archive.fp.read(4) != b"PK\x05\x06":
        raise InputError("the archive has other data before or after it", MENDED)


def _check_name(name: str) -> None:
    for pattern, what in _CODE:
        if pattern.match(name):
            raise InputError(f"it holds {what} ({name}), and reading that runs code", MENDED)
    if not _ALLOWED.fullmatch(name):
        raise InputError(f"it holds {name!r}, which is no part of an exported program", MENDED)


def _json(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    if info.file_size > _MAX_JSON_BYTES:
        raise InputError(f"{info.filename} has {info.file_size} bytes, too many for a description", MENDED)
    return json.loads(archive.read(info))


def _check_payloads(config: Any, kind: str) -> None:
    prefix = "weight_" if kind == "weights" else "tensor_"
    for name, payload in config["config"].items():
        if payload.get("use_pickle") is not False or not str(payload.get("path_name")).startswith(prefix):
            raise InputError(
                f"its {kind} {name!r} are pickled, and reading a pickle runs the code in it", MENDED
            )


def _check_program(program: Any) -> None:
    for key, value in _entries(program):
        if key == "target" and isinstance(value, str):
            _check_target(value)
        elif key == "expr_str":
            expressions.check_size(value)
        elif key == "guards_code":
            for guard in value:
                expressions.check_guard(guard)
        elif key in _NAMES and isinstance(value, str):
            _check_text(value, _NAMES[key])
        elif key == "forward_arg_names":
            for name in value or ():
                _check_text(name, _NAME)
        elif key in ("in_spec", "out_spec") and isinstance(value, str) and value:
            _check_tree(json.loads(value)[1], named=key == "in_spec")
        elif key in ("as_custom_obj", "as_opaque_obj") and value:
            raise InputError("it uses a pickled object as a constant, and reading that runs code", MENDED)


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


def _check_text(name: Any, pattern: re.Pattern[str]) -> None:
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise InputError(f"it calls a tensor or argument {str(name)[:80]!r}, which is no name", MENDED)


def _check_tree(tree: Any, named: bool) -> None:
    """The structure of the arguments: lists, tuples and dictionaries only, whose contexts name no modules.

    Args:
        named: whether the keys of dictionaries become Python source.
    """
    if tree["type"] not in _SAFE_TREES or "__enum__" in str(tree["context"]):
        raise InputError(
            f"its inputs or outputs are of type {tree['type']!r}", "use tuples, lists and dictionaries"
        )
    if named and "dict" in str(tree["type"]).lower():
        for key in json.loads(tree["context"]):
            _check_text(str(key), _PATH)
    for child in tree["children_spec"]:
        _check_tree(child, named)


def _check_samples(data: bytes) -> None:
    """PyTorch tries weights_only=True first: what passes that here is never unpickled freely there."""
    torch = require_torch()
    with attempt() as tried:
        torch.load(io.BytesIO(data), weights_only=True)
    if data and tried.error is not None:
        raise InputError("its sample inputs are pickled objects, and reading those runs code", MENDED)
