"""The templates in Triton; see :mod:`wavefit.native.templates` for what one offers."""

from __future__ import annotations

from wavefit.native.templates import Template, Templates

__all__ = ["Template", "claiming", "get", "names"]

TEMPLATES = Templates(__name__)
names, get, claiming = TEMPLATES.names, TEMPLATES.get, TEMPLATES.claiming
