"""Spec -> Source: the text of one kernel, self-contained and the same on every machine.

The text alone (with architecture, flags and compiler) decides the cubin, so nothing of this place or moment goes into
it: no path, no time, no version. Everything that a template includes is part of the text.
"""

from __future__ import annotations

import functools
from pathlib import Path
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, NamedTuple

from kgen.errors import TemplateError
from kgen.recipe import HEADER, Recipe, recipe, sha256
from kgen.spec import Spec, check_spec

if TYPE_CHECKING:
    import jinja2


class Source(NamedTuple):
    """The text of one kernel; `parts` are the templates it was made of with the sha256 of each."""

    spec: Spec
    text: str
    parts: tuple[tuple[str, str], ...]

    @property
    def sha256(self) -> str:
        return sha256(self.text)

    @property
    def waits(self) -> bool:
        """Whether the kernel itself waits for the one before it in its stream, from Hopper on."""
        return "griddepcontrol.wait;" in self.text


def render(spec: Spec) -> Source:
    """Render a specialization to CUDA C++.

    Raises TemplateError, which names the template and the line, when the template is missing, malformed, or uses a
    variable that neither the axes nor `derive` define.
    """
    check_spec("render", spec)
    return render_recipe(recipe(spec))


def render_recipe(made: Recipe) -> Source:
    """Render what `recipe` has read."""
    import jinja2  # here, since a kernel that is in the cache needs no rendering

    spec = made.spec
    try:
        text = _environment(made.parts).get_template(spec.kernel.template).render(made.values)
    except jinja2.TemplateNotFound as error:
        message = f"{spec.name}: {_where(error, spec)}: the recipe did not foresee the template {error.name!r}"
        raise TemplateError(message, hint="an include names its template in quotes") from None
    except jinja2.TemplateError as error:
        raise TemplateError(f"{spec.name}: {_where(error, spec)}: {error.message}", hint=_defined(spec)) from error
    except Exception as error:  # of an expression in the template
        what = f"{type(error).__name__}: {error}"
        raise TemplateError(f"{spec.name}: {_where(error, spec)}: {what}", hint=_defined(spec)) from error
    return source_of(made, text)


def source_of(made: Recipe, text: str) -> Source:
    """The Source of a text that this recipe gave, now or earlier."""
    return Source(made.spec, text, tuple((name, sha256(part)) for name, part in made.parts if name != HEADER))


@functools.lru_cache(maxsize=16)
def _environment(parts: tuple[tuple[str, str], ...]) -> jinja2.Environment:
    """Of the texts that the recipe read, and no file: what identifies a kernel is what is rendered."""
    import jinja2

    texts = dict(parts)

    def load(name: str) -> tuple[str, str, None] | None:
        return (texts[name], name, None) if name in texts else None

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(load),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        bytecode_cache=_compiled_pieces(),
    )


@functools.cache
def _compiled_pieces() -> jinja2.BytecodeCache:
    """What Jinja made of each text, for all environments: the pieces that many kernels include are compiled once."""
    import jinja2

    codes: dict[tuple[str, str], CodeType] = {}

    class Pieces(jinja2.BytecodeCache):
        def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
            bucket.code = codes.get((bucket.key, bucket.checksum))

        def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
            if bucket.code is not None:
                codes[bucket.key, bucket.checksum] = bucket.code

    return Pieces()


def _where(error: Exception, spec: Spec) -> str:
    """The template line at fault: syntax errors carry it, undefined variables leave it in the traceback."""
    if (line := getattr(error, "lineno", None)) is not None:
        return f"{getattr(error, 'name', None) or spec.kernel.template}:{line}"
    lines = []
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(".j2"):
            lines.append(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return lines[-1] if lines else spec.kernel.template


def _defined(spec: Spec) -> str:
    names = [axis.name for axis in spec.kernel.axes] + [flag.name for flag in spec.kernel.flags] + list(spec.derived)
    return f"defined here: {', '.join([*names, 'dtype', 'name', 'symbol'])}"
