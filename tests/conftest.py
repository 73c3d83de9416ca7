"""What all tests share."""

from __future__ import annotations

import contextlib

# torch.compile imports setuptools when it first compiles. Up to Python 3.11 setuptools then refuses to go on if any
# earlier test has made the standard library's distutils be imported, so it comes first here.
with contextlib.suppress(ImportError):
    import setuptools  # noqa: F401
