"""Spec + Arch -> Built: the cubin off a shelf, or from the store, or from the compiler and then into the store.

The key is made of all that decides the cubin (the templates and the values that fill them, architecture, options,
compiler, toolkit headers) and of nothing else, so an entry is right for ever and there is nothing to invalidate.

A shelf is a store that was filled on another machine and is only read. Whoever filled it chose the compiler: its key
has the major version of CUDA instead, since that is what drivers ask of a cubin.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from kgen import nvrtc, toolkit
from kgen.arch import Arch
from kgen.config import config
from kgen.errors import ArchError, JitDisabledError, KgenError, ToolchainError
from kgen.nvrtc import PLAIN, Binary, Flags, Resources
from kgen.recipe import Recipe, jinja_version, recipe
from kgen.render import Source, render_recipe, source_of
from kgen.spec import Spec, check_spec
from kgen.store import Entry, Store, content_key

_rendering = threading.Lock()
"""Threads render in turn: Python runs one of them anyhow, and so the compiler has the first text soon."""


class Built(NamedTuple):
    """A kernel ready to load.

    origin        "disk" or "compiled"
    milliseconds  what compiling took, now or then
    path          its entry on disk, None where none could be made
    """

    source: Source
    arch: Arch
    cubin: bytes
    resources: Resources
    compiler: str
    origin: str
    milliseconds: float
    path: Path | None

    @property
    def spec(self) -> Spec:
        return self.source.spec


def build(spec: Spec, arch: Arch, *, flags: Flags = PLAIN, force: bool = False) -> Built:
    """The cubin of one specialization, compiled unless it is in the cache.

    spec    what to build
    arch    the target architecture; needs no GPU
    force   compile even if it is in the cache

    Raises CompileError, ArchError, TemplateError or ToolchainError, and JitDisabledError if it would have to compile
    and KGEN_JIT is off.
    """
    check_spec("build", spec)
    if not isinstance(arch, Arch):
        raise ArchError(f"build: arch is {arch!r}; it takes an Arch", hint="kgen.Arch.parse gives the one of a name")
    made = recipe(spec)
    kept = None if force else _kept(made, arch, flags)
    if kept is not None:
        return _from_disk(made, arch, kept)
    if not config().jit:
        raise JitDisabledError(
            f"{spec.name} for {arch} is not in {store().root}, and compiling is off (KGEN_JIT=off)",
            hint=f"KGEN_JIT=on kgen build {spec.name} --arch {arch}",
        )
    import logging  # here, as below: a kernel from the cache needs neither

    with _rendering:
        nvrtc.load_ahead()
        source = render_recipe(made)
    binary = nvrtc.compile_source(source, arch, flags)
    entry = _publish(store(), spec, _key(made, arch, flags), source.text, binary, flags)
    logging.getLogger("kgen").info("%s for %s compiled in %.0f ms", spec.name, arch, binary.milliseconds)
    return Built(
        source, arch, binary.cubin, binary.resources, binary.compiler, "compiled", binary.milliseconds, entry.path
    )


def find(spec: Spec, arch: Arch) -> Built | None:
    """The kernel from the cache, or None; never compiles, and what keeps it from looking is no error."""
    try:
        made = recipe(spec)
        kept = _kept(made, arch, PLAIN)
    except KgenError:
        return None
    return None if kept is None else _from_disk(made, arch, kept)


def build_many(
    specs: Iterable[Spec],
    archs: Iterable[Arch],
    *,
    jobs: int | None = None,
    force: bool = False,
    progress: Callable[[Spec, Arch, Built | KgenError], None] = lambda spec, arch, result: None,
) -> list[Built | KgenError]:
    """Build every specialization for every architecture in parallel threads; the compiler does not hold the GIL.

    A failure does not stop the others: it stands in the list in place of its result. `progress` is called as each ends.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed

    specs = list(specs)  # an iterator would be empty for the second architecture
    work = [(spec, arch) for arch in archs for spec in specs]
    results: dict[int, Built | KgenError] = {}
    pool = ThreadPoolExecutor(jobs or os.cpu_count() or 1)
    try:
        futures = {pool.submit(build, spec, arch, force=force): at for at, (spec, arch) in enumerate(work)}
        for future in as_completed(futures):
            error = future.exception()
            if error is not None and not isinstance(error, KgenError):
                raise error
            result = error if isinstance(error, KgenError) else future.result()
            results[futures[future]] = result
            progress(*work[futures[future]], result)
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt should not wait for the whole queue
    return [results[at] for at in range(len(work))]


def store() -> Store:
    """The store that the environment names now."""
    settings = config()
    return _store(settings.cache_dir, settings.cache_bytes)


@functools.lru_cache(maxsize=8)
def _store(root: Path, limit: int) -> Store:
    return Store(root, limit)


def shelf() -> Store:
    """The shelf that the environment names now, or else the one that kgen was installed with; it may be empty."""
    return Store(config().shelf)


def shelve(built: Built, folder: Path) -> None:
    """Put a kernel, built with no flags of its own, on the shelf `folder`.

    Raises ToolchainError where nothing tells for which drivers it is.
    """
    key = _shelf_key(recipe(built.spec), built.arch, PLAIN)
    if key is None:
        raise ToolchainError("which CUDA the cubins are for is not known", hint=toolkit.INSTALL)
    _publish(Store(folder, private=False), built.spec, key, built.source.text, built, PLAIN)


def _publish(where: Store, spec: Spec, key: str, text: str, kernel: Binary | Built, flags: Flags) -> Entry:
    meta = {
        "symbol": spec.symbol,
        "resources": kernel.resources.as_dict(),
        "compiler": kernel.compiler,
        "flags": list(flags.options),
        "milliseconds": kernel.milliseconds,
    }
    return where.publish(spec.name, str(kernel.arch), key, text, kernel.cubin, meta)


def _kept(made: Recipe, arch: Arch, flags: Flags) -> Entry | None:
    """The shelf comes first: to ask the store takes a compiler, if only its version."""
    place, key = (made.spec.name, str(arch)), _shelf_key(made, arch, flags)
    found = shelf().read(*place, key) if key else None
    return found or store().load(*place, _key(made, arch, flags))


def _shelf_key(made: Recipe, arch: Arch, flags: Flags) -> str | None:
    if (cuda := toolkit.major_version()) is None:
        return None
    return content_key(recipe=made.identity, arch=str(arch), flags=flags.options, cuda=str(cuda))


def _key(made: Recipe, arch: Arch, flags: Flags) -> str:
    return content_key(
        recipe=made.identity,
        jinja=jinja_version(),
        arch=str(arch),
        flags=flags.options,
        compiler=nvrtc.compiler_id(),
        headers=toolkit.header_digest(made.toolkit_headers),
    )


def _from_disk(made: Recipe, arch: Arch, kept: Entry) -> Built:
    resources = Resources(**kept.meta["resources"])
    source = source_of(made, kept.source)
    return Built(
        source, arch, kept.cubin, resources, kept.meta["compiler"], "disk", kept.meta["milliseconds"], kept.path
    )
