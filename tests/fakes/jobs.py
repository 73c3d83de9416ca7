"""Functions that a child process can be told to run: each ends in another way."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from wavefit.child.main import Reporter
from wavefit.errors import InputError, RouteError
from wavefit.schema import TensorSpec


def echo(payload: TensorSpec, say: Reporter) -> TensorSpec:
    """Answers with what it was given, while a library prints over its standard output."""
    say.stage("open")
    os.write(1, b"a native library greets\n")
    print("so does Python")
    say("half way")
    return payload


def segfault(payload: TensorSpec, say: Reporter) -> TensorSpec:
    say.stage("open")
    ctypes.string_at(0)
    return payload


def hang(payload: TensorSpec, say: Reporter) -> TensorSpec:
    """Hangs, after starting a process of its own; that one's number is written to the file named in the payload."""
    say.stage("first run")
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(payload.name).write_text(f"{os.getpid()} {other.pid}")
    time.sleep(600)
    return payload


def killed(payload: TensorSpec, say: Reporter) -> TensorSpec:
    os.kill(os.getpid(), signal.SIGKILL)
    return payload


def bug(payload: TensorSpec, say: Reporter) -> TensorSpec:
    raise KeyError("no such thing")


def bug_and_hanging_exit(payload: TensorSpec, say: Reporter) -> TensorSpec:
    """As a GPU's runtime may, hangs when Python ends."""
    atexit.register(time.sleep, 600)
    raise KeyError("no such thing")


def torn(payload: TensorSpec, say: Reporter) -> TensorSpec:
    """Is killed while it answers."""
    say.stage("measure")
    say._events.write(b'{"result": {"name": "ima')
    say._events.flush()
    return killed(payload, say)


def bad_input(payload: TensorSpec, say: Reporter) -> TensorSpec:
    raise InputError("image.png is 9x9 pixels", "add --resize")


def refused(payload: TensorSpec, say: Reporter) -> TensorSpec:
    say.stage("open")
    raise RouteError("libmigraphx_c.so.3 is missing", "apt install migraphx")


def gpu_memory(payload: TensorSpec, say: Reporter) -> TensorSpec:
    raise RouteError("HIP out of memory: tried to allocate 98 MiB")


def host_memory(payload: TensorSpec, say: Reporter) -> TensorSpec:
    np.ones(1 << 50, np.uint8)
    return payload


def full_disk(payload: TensorSpec, say: Reporter) -> TensorSpec:
    """/dev/full takes nothing: writing to it fails as on a full disk."""
    with Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"a model")
    return payload


def full_disk_in_a_library(payload: TensorSpec, say: Reporter) -> TensorSpec:
    """As torch.save and ONNX Runtime tell it: an error of their own, with the system's words."""
    raise RuntimeError("cannot write model.onnx: No space left on device")
