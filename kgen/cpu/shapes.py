"""Shapes -> functions in this process: compiled where no kernel had them before, and kept in the store by batches."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from kgen.build import store
from kgen.config import config
from kgen.cpu import compiler
from kgen.cpu.load import address, loaded
from kgen.cpu.translate.shape import Shape, source
from kgen.errors import JitDisabledError
from kgen.store import Entry, content_key

_NAME = "kg_shapes"
_one_at_a_time = threading.Lock()


class _Known:
    """The shapes in one store, for checked kernels or for others: the batch of each, by its function's name."""

    def __init__(self, root: Path, check: bool) -> None:
        self.check = check
        self.batches: dict[str, Entry] = {}
        self.addresses: dict[str, int] = {}
        self._seen: set[Path] = set()

    def add(self, batch: Entry) -> None:
        for name in batch.meta["shapes"]:
            self.batches.setdefault(name, batch)

    def look(self) -> None:
        """Take in what other processes have put into the store since."""
        for path in store().named(_NAME, compiler.host()):
            if path not in self._seen:
                self._seen.add(path)
                batch = store().read_folder(path)
                if batch is not None and batch.meta["identity"] == self.identity():
                    self.add(batch)

    def identity(self) -> str:
        return content_key(compiler=compiler.identity(), checked="checked" if self.check else "plain")


_known: dict[tuple[Path, bool], _Known] = {}


def functions(shapes: Sequence[Shape], includes: Sequence[str], check: bool) -> list[int]:
    """The addresses of the shapes' functions; what is missing is compiled. `includes` are the headers they need."""
    with _one_at_a_time:
        root = store().root
        known = _known.setdefault((root, check), _Known(root, check))
        names = [_name(shape) for shape in shapes]
        if not known.batches.keys() >= {*names}:
            known.look()
        if missing := {name: shape for name, shape in zip(names, shapes) if name not in known.batches}:
            known.add(_compiled(missing, includes, known))
        for name in names:
            if name not in known.addresses:
                known.addresses[name] = address(loaded(known.batches[name]), name)
        return [known.addresses[name] for name in names]


def _name(shape: Shape) -> str:
    return f"kg_shape_{sha256(f'{shape.lane} {shape.text}'.encode()).hexdigest()[:16]}"


def _compiled(missing: dict[str, Shape], includes: Sequence[str], known: _Known) -> Entry:
    if not config().jit:
        where = store().root
        raise JitDisabledError(f"{where} lacks statements of the CPU executor, and compiling is off (KGEN_JIT=off)")
    headers = [f'#include "{name}"' for name in ("shape.h", *includes)]
    text = "\n".join([*headers, *(source(shape, name) for name, shape in missing.items()), ""])
    options = ("-O3", "-DKG_CHECKED") if known.check else ("-O3",)  # loops over the lanes become vectors
    binary = compiler.build(text, *options, system=False)
    key = content_key(identity=known.identity(), text=text)
    facts = {"identity": known.identity(), "shapes": [*missing]}
    return store().publish(_NAME, compiler.host(), key, text, binary, facts)
