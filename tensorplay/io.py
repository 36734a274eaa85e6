"""Saving and loading: tensors in safetensors files, never pickled.

A file holds tensors under names, and what else there is as JSON: so a file from anywhere can be
opened without running anything that is in it, and other programs can read it.  The format
(https://huggingface.co/docs/safetensors) is a length of eight bytes, a header in JSON, and the
bytes of the tensors.  It is written and read here rather than by its own package, which is compiled
and could not be installed wherever NumPy can.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from tensorplay import dtypes
from tensorplay.tensor import Tensor, wrap

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]

#: How element types are called in a file.
_NAMES = {
    "BOOL": dtypes.bool,
    "U8": dtypes.uint8,
    "I8": dtypes.int8,
    "I16": dtypes.int16,
    "I32": dtypes.int32,
    "I64": dtypes.int64,
    "F16": dtypes.float16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
    "C64": dtypes.complex64,
    "U16": np.dtype(np.uint16),
    "U32": np.dtype(np.uint32),
    "U64": np.dtype(np.uint64),
}
_CODES = {dtype: name for name, dtype in _NAMES.items()}

#: Where a header keeps what is not a tensor.
_METADATA = "__metadata__"
#: Under this key of the header's metadata stands how what was saved is built, as JSON.
_BUILD = "tensorplay"
#: The name of a tensor that was saved by itself.
_SINGLE = "tensor"
#: No header is longer, by the format's definition.
_LONGEST_HEADER = 100_000_000
_ALIGNMENT = 8


def save(obj: Any, f: PathLike | IO[bytes]) -> None:
    """Write tensors, and what they are kept in, to a file.

    Args:
        obj: A tensor; or dictionaries (with strings or whole numbers as keys), lists and tuples,
            nested as you like, of tensors, arrays, numbers, strings, booleans and None: such as the
            `state_dict` of a module, of an optimizer, or a dictionary of both.
        f: A path, or a file that is open for writing bytes.  At a path there stands either the old
            file or the whole new one, at any time.

    What is loaded consists of plain tensors, dictionaries, lists and tuples: whether a tensor
    required grad, or was a parameter, is not kept, and an `OrderedDict` or other kind of dictionary
    comes back as a ``dict`` (in its order), a named tuple as a tuple.

    Raises:
        ValueError: A container in `obj` contains itself, or containers are nested too deeply.
        TypeError: Something in `obj` cannot be saved; the message says what and where.

    >>> import tensorplay as tp
    >>> import io
    >>> file = io.BytesIO()
    >>> tp.save({"step": 3, "w": tp.ones(2)}, file)
    >>> _ = file.seek(0)
    >>> tp.load(file)
    {'step': 3, 'w': tensor([1., 1.])}
    """
    arrays: dict[str, Array] = {}
    try:
        build = _taken_apart(obj, "", arrays, ())
        header, chunks = _encoded(arrays, build)
    except RecursionError:
        raise ValueError("cannot save this: its containers are nested too deeply") from None
    if isinstance(f, (str, os.PathLike)):
        _replace_file(Path(f), header, chunks)
    else:
        _write(f, header, chunks)


def load(f: PathLike | IO[bytes], *, mmap: bool = False) -> Any:
    """Read what `save` wrote, or any other safetensors file: a dictionary of its tensors.

    Args:
        f: A path, or a file that is open for reading bytes.
        mmap: Leave the tensors' bytes in the file until they are looked at.  Writing into such a
            tensor does not change the file.  Only with a path.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no safetensors file, or it is damaged; or `mmap` without a path.
    """
    if isinstance(f, (str, os.PathLike)):
        path = Path(f)
        if mmap and path.stat().st_size:
            return _decoded(np.memmap(path, np.uint8, mode="c"), str(path))
        # Into memory that can be written to.
        return _decoded(np.fromfile(path, np.uint8), str(path))
    if mmap:
        raise ValueError("mmap=True needs a path, not an open file")
    return _decoded(np.frombuffer(bytearray(f.read()), np.uint8), "the file")


def _taken_apart(obj: Any, path: str, arrays: dict[str, Array], around: tuple[int, ...]) -> Any:
    """How `obj` is built, as JSON, with its tensors put into `arrays` under their paths.

    A tensor is ``{"t": name}``, a dictionary ``{"d": [[key, value], ...]}``, a list
    ``{"l": [...]}``, a tuple ``{"u": [...]}``, a number that JSON does not have ``{"f": text}``;
    what is left stands for itself.  `around` are the identities of what `obj` is contained in.
    """
    if isinstance(obj, np.generic):
        obj = obj.item()
    if isinstance(obj, (Tensor, np.ndarray)):
        array = obj._array if isinstance(obj, Tensor) else obj
        name = path or _SINGLE
        while name in arrays or name == _METADATA:
            # Keys with a dot in them may lead to the same path.
            name += "'"
        if array.dtype not in _CODES and array.dtype != dtypes.complex128:
            raise TypeError(f"cannot save {_where(path)}: elements of type {array.dtype}")
        arrays[name] = array
        return {"t": name}
    if obj is None or isinstance(obj, (bool, str)) or type(obj) is int:
        return obj
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else {"f": repr(float(obj))}
    if id(obj) in around:
        raise ValueError(f"cannot save {_where(path)}: it is contained in itself")
    around = (*around, id(obj))
    if isinstance(obj, Mapping):
        pairs = []
        for key, value in obj.items():
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                raise TypeError(
                    f"cannot save {_where(path)}: its key {key!r} is neither a string nor a whole "
                    "number"
                )
            inner = f"{path}.{key}" if path else str(key)
            pairs.append([key, _taken_apart(value, inner, arrays, around)])
        return {"d": pairs}
    if type(obj) in (list, tuple) or (isinstance(obj, tuple) and hasattr(obj, "_fields")):
        parts = [
            _taken_apart(part, f"{path}.{i}" if path else str(i), arrays, around)
            for i, part in enumerate(obj)
        ]
        return {"l" if isinstance(obj, list) else "u": parts}
    raise TypeError(
        f"cannot save {_where(path)}: a {type(obj).__qualname__} is neither a tensor, a number, a "
        "string nor a dictionary, list or tuple of them. Of modules and optimizers, save the "
        "state_dict()."
    )


def _where(path: str) -> str:
    return f"the value at {path!r}" if path else "this"


def _put_together(build: Any, arrays: dict[str, Array]) -> Any:
    """The opposite of `_taken_apart`."""
    if not isinstance(build, dict):
        return build
    ((kind, content),) = build.items()
    if kind == "t":
        return wrap(arrays[content])
    if kind == "d":
        return {key: _put_together(value, arrays) for key, value in content}
    if kind == "f":
        return float(content)
    parts = [_put_together(part, arrays) for part in content]
    return {"l": list, "u": tuple}[kind](parts)


def _encoded(arrays: dict[str, Array], build: Any) -> tuple[bytes, list[Array]]:
    """The header with its length, and the arrays in the order of their bytes."""
    entries: dict[str, Any] = {
        _METADATA: {"format": "np", _BUILD: json.dumps(build, separators=(",", ":"))}
    }
    chunks = []
    offset = 0
    # The widest elements first: so all lie at multiples of their own size.
    for name, array in sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0])):
        shape = list(array.shape)
        data: Array = np.ascontiguousarray(array)
        if data.dtype.kind == "c" and data.dtype.itemsize == 16:
            # The format has no name for these: as pairs of numbers.
            data = data.reshape(-1).view(np.float64)
            shape.append(2)
        code = _CODES[np.dtype(data.dtype.newbyteorder("="))]
        data = data.astype(data.dtype.newbyteorder("<"), copy=False)
        entries[name] = {
            "dtype": code,
            "shape": shape,
            "data_offsets": [offset, offset + data.nbytes],
        }
        if array.dtype == dtypes.complex128:
            entries[_METADATA].setdefault("complex", []).append(name)
        chunks.append(data)
        offset += data.nbytes
    pairs = entries[_METADATA].get("complex")
    if pairs is not None:
        entries[_METADATA]["complex"] = json.dumps(pairs)
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    if len(text) > _LONGEST_HEADER:
        raise ValueError(f"there is too much besides the tensors: {len(text)} bytes")
    return len(text).to_bytes(8, "little") + text, chunks


def _write(file: IO[bytes], header: bytes, chunks: list[Array]) -> None:
    file.write(header)
    for chunk in chunks:
        # Straight from the array's memory.
        file.write(chunk.reshape(-1).view(np.uint8).data)


def _replace_file(path: Path, header: bytes, chunks: list[Array]) -> None:
    """Write beside the path, then move there: an interrupted write leaves the old file."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            _write(file, header, chunks)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _decoded(content: Array, source: str) -> Any:
    """What a file's bytes hold."""
    try:
        length = int.from_bytes(content[:8].tobytes(), "little")
        if len(content) < 8 or length > min(_LONGEST_HEADER, len(content) - 8):
            raise ValueError("its header is cut off")
        entries = json.loads(content[8 : 8 + length].tobytes())
        metadata = entries.pop(_METADATA, {})
        body = content[8 + length :]
        pairs = json.loads(metadata.get("complex", "[]")) if _BUILD in metadata else []
        arrays = {name: _array_in(body, entry, name) for name, entry in entries.items()}
        _check_extents([tuple(entry["data_offsets"]) for entry in entries.values()], len(body))
        for name in pairs:
            arrays[name] = arrays[name].view(np.complex128)[..., 0]
        if _BUILD not in metadata:
            return {name: wrap(array) for name, array in arrays.items()}
        return _put_together(json.loads(metadata[_BUILD]), arrays)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"{source} is no safetensors file, or damaged: {error}") from error


def _check_extents(extents: list[tuple[int, int]], size: int) -> None:
    """Raise unless these lie side by side and fill the file, as the format has it."""
    end = 0
    for start, stop in sorted(extents):
        if start != end:
            raise ValueError("its tensors do not lie side by side")
        end = stop
    if end != size:
        raise ValueError(f"there are {size - end} bytes behind the last tensor")


def _array_in(body: Array, entry: dict[str, Any], name: str) -> Array:
    code = entry["dtype"]
    if code not in _NAMES:
        raise ValueError(f"{name!r} has elements of type {code}, which tensors cannot hold")
    dtype = _NAMES[code]
    start, stop = entry["data_offsets"]
    shape = tuple(entry["shape"])
    size = math.prod(shape) * dtype.itemsize
    if any(n < 0 for n in shape) or not 0 <= start <= stop <= len(body) or stop - start != size:
        raise ValueError(f"{name!r} does not lie where it should")
    raw = body[start:stop]
    if raw.ctypes.data % dtype.alignment:
        raw = raw.copy()
    array = raw.view(dtype.newbyteorder("<")).reshape(shape)
    return dtypes.normalised(np.asarray(array))
