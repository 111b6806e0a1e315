"""What can be seen in the store is whole: against races, kills, bad disks, jumping clocks and strangers."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import resource
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kgen import store as store_module
from kgen.errors import CacheWarning
from kgen.store import CUBIN, META, SOURCE, Entry, Store, content_key

pytestmark = pytest.mark.filterwarnings("error::kgen.errors.CacheWarning")  # a warning that no test expects fails it

NAME, ARCH = "softmax_e128_w4_f16", "sm_90a"
SOURCE_TEXT = 'extern "C" __global__ void kgen_softmax() {} // Δ\r\n'
CUBIN_BYTES = b"\x7fELF" + bytes(range(256)) * 4 + b"\0"
FACTS = {"symbol": "kgen_softmax", "resources": {"registers": 64, "spills": [0, 0]}, "milliseconds": 76.25}
NOT_META = [b"", b"0", b"[]", b"{}", b"null", b'"text"', b"[" * 100_000, b'{"seal": 1}', b"9" * 5000, b"\xff"]
NOBODY = 65534
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where a sync costs nothing


@pytest.fixture(autouse=True)
def fresh_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_warned", set())


@pytest.fixture
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Store(Path(folder) / "cache")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are private."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Give up root, which no permission stops."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def key_of(text: str = "") -> str:
    return content_key(source=SOURCE_TEXT, text=text)


def publish(store: Store, text: str = "", name: str = NAME, cubin: bytes = CUBIN_BYTES) -> Entry:
    return store.publish(name, ARCH, key_of(text), SOURCE_TEXT, cubin, FACTS)


def load(store: Store, text: str = "", name: str = NAME) -> Entry | None:
    return store.load(name, ARCH, key_of(text))


def folder_of(entry: Entry) -> Path:
    assert entry.path is not None
    return entry.path


def aside(store: Store) -> list[Path]:
    return list((store.root / "v1/tmp").glob("*"))


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def fork(body: Callable[[], object]) -> int:
    """Run body in a child; its exit status is 0 when body returns. The caller waits."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            body()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def refusing(number: int) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return refuse


def before(name: str, method: Callable[[Path], Any], act: Callable[[], object]) -> Callable[[Path], Any]:
    """The method of Path, with an act just before it is called on a path of that name."""

    def called(path: Path) -> Any:
        if path.name == name:
            act()
        return method(path)

    return called


# Keys


def test_key_ignores_the_order_of_its_fields() -> None:
    assert content_key(source="a", arch="b") == content_key(arch="b", source="a")


def test_key_of_a_tuple_is_that_of_a_list() -> None:
    assert content_key(flags=("-a", "-b")) == content_key(flags=["-a", "-b"])


def test_key_is_the_same_in_every_process_and_version() -> None:
    written = [
        b"kgen 1\n",
        b"4:blob5:bytes1:1",
        b"1:\0",
        b"5:flags4:list1:2",
        b"2:-a",
        b"2:-b",
        b"6:source3:str1:1",
        b"1:x",
    ]
    assert content_key(source="x", blob=b"\0", flags=["-a", "-b"]) == sha256(b"".join(written)).hexdigest()


values = st.one_of(
    st.text("ab:1", max_size=4), st.binary(max_size=3), st.lists(st.text("ab:1", max_size=2), max_size=3)
)
fields = st.dictionaries(st.text("ab", min_size=1, max_size=2), values, max_size=3)


@given(fields, fields)
@settings(max_examples=300, deadline=None)
def test_key_tells_apart_all_that_differs(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (content_key(**one) == content_key(**other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"flags": ["ab", "c"]}, {"flags": ["a", "bc"]}),
        ({"flags": ["a", "b"]}, {"flags": ["a"], "b": ""}),
        ({"x": "a"}, {"x": b"a"}),
        ({"x": "a"}, {"x": ["a"]}),
        ({"x": "1:a"}, {"x": ["a"]}),
        ({"xa": "b"}, {"x": "ab"}),
        ({"x": ""}, {}),
        ({"x": []}, {"x": [""]}),
    ],
)
def test_key_tells_apart_what_concatenates_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert content_key(**one) != content_key(**other)


@pytest.mark.parametrize("value", [7, None, [7], bytearray(b"a")])
def test_key_refuses_what_is_not_text_or_bytes(value: Any) -> None:
    with pytest.raises(TypeError):
        content_key(x=value)


# What is published is what is loaded


def test_load_gives_what_was_published(store: Store) -> None:
    published = publish(store)
    loaded = Store(store.root).load(NAME, ARCH, key_of())
    assert loaded == published
    assert loaded is not None
    assert (loaded.source, loaded.cubin, loaded.meta["resources"]) == (SOURCE_TEXT, CUBIN_BYTES, FACTS["resources"])


def test_entry_is_a_folder_of_three_plain_files(store: Store) -> None:
    folder = folder_of(publish(store))
    assert folder == store.root / f"v1/{ARCH}/{NAME}-{key_of()[:12]}"
    assert {path.name for path in folder.iterdir()} == {SOURCE, CUBIN, META}
    assert (folder / SOURCE).read_bytes() == SOURCE_TEXT.encode()
    assert (folder / CUBIN).read_bytes() == CUBIN_BYTES
    meta = json.loads((folder / META).read_text())
    own = {"schema": 1, "name": NAME, "arch": ARCH, "key": key_of(), "cubin_bytes": len(CUBIN_BYTES)}
    own |= {"source_sha256": sha256(SOURCE_TEXT.encode()).hexdigest(), "cubin_sha256": sha256(CUBIN_BYTES).hexdigest()}
    assert own | FACTS == {label: value for label, value in meta.items() if label != "seal"}


def test_publish_leaves_nothing_aside(store: Store) -> None:
    publish(store)
    assert aside(store) == []


def test_load_of_what_was_never_published_is_a_miss_and_makes_no_folder(store: Store) -> None:
    assert load(store) is None
    assert not store.root.exists()


def test_facts_of_the_store_win_over_those_of_the_caller(store: Store) -> None:
    lies = {"key": "0" * 64, "seal": "mine", "cubin_sha256": "", "schema": 9}
    published = store.publish(NAME, ARCH, key_of(), SOURCE_TEXT, CUBIN_BYTES, lies)
    assert published.meta["key"] == key_of()
    assert load(store) == published


def test_facts_that_json_cannot_hold_are_refused_before_anything_is_written(store: Store) -> None:
    for facts in ({"x": object()}, {"x": float("nan")}):
        with pytest.raises((TypeError, ValueError)):
            store.publish(NAME, ARCH, key_of(), SOURCE_TEXT, CUBIN_BYTES, facts)
    assert not store.root.exists()


@pytest.mark.parametrize(
    ("name", "arch", "key"),
    [
        *((name, ARCH, key_of()) for name in ("", "..", "a/b", "../a", "/a", "a\\b", "a.b", "a-b", "a\0", "a\n")),
        *((name, ARCH, key_of()) for name in ("ä", "a" * 201)),
        *((NAME, arch, key_of()) for arch in ("", "tmp", "..", "sm_90a/..", "sm_", "sm_90a\n", "SM_90")),
        *((NAME, ARCH, key) for key in ("", "0" * 63, "0" * 65, "G" * 64, "../" + "0" * 61, "A" * 64)),
    ],
)  # fmt: skip
def test_hostile_names_are_refused(store: Store, name: str, arch: str, key: str) -> None:
    with pytest.raises(ValueError, match="not the name, arch and key"):
        store.load(name, arch, key)
    with pytest.raises(ValueError, match="not the name, arch and key"):
        store.publish(name, arch, key, SOURCE_TEXT, CUBIN_BYTES, FACTS)
    assert not store.root.exists()


def test_longest_name_is_published(store: Store) -> None:
    published = publish(store, name="a" * 200)
    assert load(store, name="a" * 200) == published


def test_all_is_private_to_the_user(store: Store) -> None:
    umask = os.umask(0)
    try:
        folder = folder_of(publish(store))
    finally:
        os.umask(umask)
    for path in (folder, folder.parent, store.root / "v1", store.root, store.root / "v1/tmp"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o777])
def test_folder_that_existed_keeps_its_mode(store: Store, mode: int) -> None:
    store.root.mkdir()
    store.root.chmod(mode)
    publish(store)
    assert stat.S_IMODE(store.root.stat().st_mode) == mode


def test_hot_load_costs_less_than_a_millisecond(store: Store) -> None:
    publish(store, cubin=bytes(50_000))
    costs = []
    for _ in range(50):
        start = time.perf_counter()
        assert load(store)
        costs.append(time.perf_counter() - start)
    assert min(costs) < 1e-3


# Damage


file_names = st.sampled_from([SOURCE, CUBIN, META])
places = st.floats(0, 1, exclude_max=True)
damages = st.one_of(
    st.tuples(st.just("flip"), places, st.integers(0, 7)),
    st.tuples(st.just("cut"), places, st.none()),
    st.tuples(st.just("insert"), places, st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("write"), places, st.one_of(st.binary(max_size=40), st.sampled_from(NOT_META))),
    st.tuples(st.sampled_from(["remove", "folder", "nowhere", "swap"]), places, st.none()),
)


def damage(path: Path, kind: str, place: float, detail: Any) -> None:
    data = path.read_bytes()
    at = int(place * len(data))
    if kind == "flip":
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << detail]) + data[at + 1 :])
    elif kind == "cut":
        path.write_bytes(data[:at])
    elif kind == "insert":
        path.write_bytes(data[:at] + detail + data[at:])
    elif kind == "write":
        path.write_bytes(detail)
    elif kind == "swap":
        path.write_bytes(data[at:] + data[:at])
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "nowhere":
            path.symlink_to("nowhere")


@given(file_names, damages)
@example(META, ("write", 0.0, b"{}"))
@settings(max_examples=250, deadline=None)
def test_any_damage_gives_the_right_bytes_or_a_miss_and_then_heals(name: str, how: tuple[str, float, Any]) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as root, warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        store = Store(Path(root))
        published = publish(store)
        damage(folder_of(published) / name, *how)
        problems = store.verify()
        loaded = load(store)
        assert loaded in (published, None)
        assert [record.path for record, _ in problems] == ([] if loaded else [published.path])
        assert publish(store) == load(store) == published


def test_damaged_entry_is_removed_with_one_warning(store: Store) -> None:
    for attempt in range(3):
        folder = folder_of(publish(store))
        (folder / CUBIN).write_bytes(b"")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert load(store) is None
        assert not folder.exists()
        assert aside(store) == []
        assert [warning.category for warning in caught] == [CacheWarning] * (attempt == 0)
        assert all(str(folder) in str(warning.message) and CUBIN in str(warning.message) for warning in caught)


@pytest.mark.parametrize("stranger", ["file", "link", "empty folder"])
def test_what_stands_in_the_place_of_an_entry_gives_way(store: Store, tmp_path: Path, stranger: str) -> None:
    folder = folder_of(publish(store))
    shutil.rmtree(folder)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/file").touch()
    if stranger == "file":
        folder.touch()
    elif stranger == "link":
        folder.symlink_to(tmp_path / "theirs")
    else:
        folder.mkdir()
    with pytest.warns(CacheWarning):
        assert load(store) is None
    assert publish(store) == load(store)
    assert aside(store) == []
    assert (tmp_path / "theirs/file").exists()  # a link is removed, what it points to is not


def test_entry_in_the_wrong_place_is_refused(store: Store) -> None:
    shutil.copytree(folder_of(publish(store, "one")), folder := folder_of(publish(store, "two")), dirs_exist_ok=True)
    assert [record.path for record, _ in store.verify()] == [folder]
    with pytest.warns(CacheWarning):
        assert load(store, "two") is None
    assert load(store, "one")


def test_key_that_differs_beyond_the_folder_name_is_a_miss_and_harms_nobody(store: Store) -> None:
    published = publish(store)
    twin = key_of()[:12] + "0" * 52
    assert store.load(NAME, ARCH, twin) is None
    assert store.publish(NAME, ARCH, twin, "other", b"other", {}).cubin == b"other"
    assert load(store) == published


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOMEM])
def test_entry_that_cannot_be_read_just_now_is_a_miss_and_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    published = publish(store)
    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", refusing(number))
        assert load(store) is None
        assert store.verify() == []  # nothing is proven against it
    assert load(store) == published


def test_entry_too_large_for_memory_is_a_miss(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(self: Path) -> NoReturn:
        raise MemoryError

    publish(store)
    monkeypatch.setattr(Path, "read_bytes", too_large)
    assert load(store) is None


# Races


def test_two_hundred_processes_that_publish_one_key_leave_one_whole_entry(tmp_path: Path) -> None:
    store = Store(tmp_path)
    everybody_is_ready, go = os.pipe()

    def compete(number: int) -> None:
        os.close(go)
        os.read(everybody_is_ready, 1)  # returns when the last writer, the parent, closes its end
        mine = str(number).encode() * 3000
        entry = store.publish(NAME, ARCH, key_of(), SOURCE_TEXT, mine, {"writer": number})
        assert entry.cubin == mine
        assert entry.meta["writer"] == number
        assert entry.path
        winner = load(store)
        assert winner
        assert winner.cubin == str(winner.meta["writer"]).encode() * 3000

    children = [fork(lambda number=number: compete(number)) for number in range(200)]  # type: ignore[misc]
    os.close(go)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 200
    os.close(everybody_is_ready)
    assert len(store.entries()) == 1
    assert store.verify() == []
    assert aside(store) == []


def test_loser_of_a_rename_race_keeps_its_result(store: Store) -> None:
    winner = publish(store, cubin=b"first")
    loser = publish(store, cubin=b"second")
    assert (loser.cubin, loser.path) == (b"second", winner.path)
    assert load(store) == winner
    assert aside(store) == []


@pytest.mark.parametrize("file", [META, SOURCE, CUBIN])
def test_entry_that_is_trimmed_while_loading_is_a_miss(
    store: Store, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    publish(store)
    monkeypatch.setattr(Path, "read_bytes", before(file, Path.read_bytes, store.clear))
    assert load(store) is None


def test_entry_that_is_replaced_while_loading_is_not_taken_for_damage(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace() -> None:
        if store.clear():
            replaced.append(publish(store, cubin=b"of a compiler that is not reproducible %d" % len(replaced)))

    replaced: list[Entry] = []
    publish(store)
    with monkeypatch.context() as racing:
        racing.setattr(Path, "read_bytes", before(CUBIN, Path.read_bytes, replace))
        assert load(store) is None
    assert load(store) == replaced[-1]


def test_listing_passes_over_what_vanishes_meanwhile(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    doomed, other = sorted(folder_of(publish(store, text)) for text in "ab")
    monkeypatch.setattr(Path, "iterdir", before(doomed.name, Path.iterdir, lambda: shutil.rmtree(doomed)))
    assert [record.path for record in store.entries()] == [other]


# Crashes


def test_kill_at_any_line_leaves_only_whole_entries(store: Store) -> None:
    """Run the life of some entries again and again, killed at another line of the store each time."""

    def live() -> None:
        warnings.simplefilter("ignore", CacheWarning)
        small = Store(store.root, limit_bytes=4 * len(CUBIN_BYTES))
        for text in "aab":
            publish(small, text)
            load(small, text)
        damaged = folder_of(publish(small, "damaged"))
        (damaged / CUBIN).write_bytes(b"")
        load(small, "damaged")
        small.clear()

    def traced(at_line: Callable[[int], None]) -> None:
        def trace(frame: Any, event: str, _: Any) -> Any:
            if frame.f_code.co_filename != store_module.__file__:
                return None
            at_line(frame.f_lineno)
            return trace

        sys.settrace(trace)
        live()

    def record() -> None:
        with notes.open("w") as stream:
            traced(lambda line: print(line, file=stream))

    def live_until(moment: int) -> None:
        moments = itertools.count()
        traced(lambda _: os.kill(os.getpid(), signal.SIGKILL) if next(moments) == moment else None)

    notes = store.root.with_name("lines")
    assert os.waitpid(fork(record), 0)[1] == 0
    moments_of: dict[str, list[int]] = {}
    for moment, line in enumerate(notes.read_text().split()):
        moments_of.setdefault(line, []).append(moment)
    assert len(moments_of) > 80
    for moment in sorted({moment for moments in moments_of.values() for moment in (*moments[:2], moments[-1])}):
        store.clear()
        _, status = os.waitpid(fork(lambda: live_until(moment)), 0)  # noqa: B023
        assert status == signal.SIGKILL
        assert [record for record, _ in store.verify() if record.key != key_of("damaged")[:12]] == []
    leftovers = aside(store)
    assert leftovers
    for leftover in leftovers:
        age(leftover, 3700)
    publish(store)
    assert aside(store) == []


def test_kill_at_any_time_leaves_only_whole_entries(store: Store) -> None:
    def churn() -> None:
        mine = Store(store.root, limit_bytes=6 * len(CUBIN_BYTES))
        while True:
            text = random.choice("abcdef")
            loaded = load(mine, text)
            assert loaded is None or loaded.cubin == text.encode() * 999
            publish(mine, text, cubin=text.encode() * 999)

    dice = random.Random(7)
    for _ in range(25):
        children = [fork(churn) for _ in range(3)]
        time.sleep(dice.uniform(0.01, 0.06))
        for child in children:
            os.kill(child, signal.SIGKILL)
        assert {os.waitpid(child, 0)[1] for child in children} == {signal.SIGKILL}
        assert store.verify() == []
    assert store.entries()


def test_all_is_synced_before_the_rename(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def noted_fsync(descriptor: int) -> None:
        assert os.fstat(descriptor).st_size > 0
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def noted_rename(source: Path, target: Path) -> Path:
        synced.append("rename")
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    folder = folder_of(publish(store))
    assert set(synced[:3]) == {SOURCE, CUBIN, META}
    assert synced[3:] == [folder.name, "rename"]


def test_stale_staging_is_swept_and_young_staging_is_not(store: Store) -> None:
    publish(store)
    for name, seconds in (("old", 3700), ("young", 3500), ("future", -3700)):
        (store.root / "v1/tmp" / name).mkdir()
        (store.root / "v1/tmp" / name / CUBIN).touch()
        age(store.root / "v1/tmp" / name, seconds)
    publish(store, "next")
    assert [path.name for path in aside(store)] == ["young"]


def test_writer_that_slept_for_an_hour_publishes_nothing_partial(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write = store_module.write_synced

    def sleepy(folder: Path, files: dict[str, bytes], mode: int) -> None:
        monkeypatch.setattr(store_module, "write_synced", write)
        write(folder, files, mode)
        age(folder.parent, 3700)
        publish(store, "by another, who sweeps")

    monkeypatch.setattr(store_module, "write_synced", sleepy)
    with pytest.warns(CacheWarning):
        assert publish(store).path is None
    assert store.verify() == []
    assert len(store.entries()) == 1


# Disks that refuse


def assert_published_nowhere(store: Store) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for text in ("x", "y", "x"):
            entry = publish(store, text)
            assert (entry.path, entry.source, entry.cubin) == (None, SOURCE_TEXT, CUBIN_BYTES)
            assert entry.meta["symbol"] == FACTS["symbol"]
            assert load(store, text) is None
        store.trim(0)
        assert (store.verify(), store.info()["path"]) == ([], str(store.root))
    assert [warning.category for warning in caught] == [CacheWarning]
    assert str(store.root) in str(caught[0].message)
    assert "KGEN_CACHE_DIR" in str(caught[0].message)
    assert [folder for folder, _, _ in os.walk(store.root / "v1" / ARCH) if key_of("x")[:12] in folder] == []


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_root_that_is_a_file_or_below_one_means_going_without(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    assert_published_nowhere(Store(tmp_path / "file" / below))


@pytest.mark.parametrize("inner", ["v1", "v1/tmp", f"v1/{ARCH}"])
def test_file_where_a_folder_belongs_means_going_without(store: Store, inner: str) -> None:
    (store.root / inner).parent.mkdir(parents=True)
    (store.root / inner).touch()
    assert_published_nowhere(store)


@pytest.mark.parametrize("root", ["/proc/kgen", "/proc/self/kgen", "/sys/kgen", "/dev/null/kgen", "/dev/full"])
def test_root_that_nobody_can_write_means_going_without(root: str) -> None:
    assert_published_nowhere(Store(Path(root)))


def test_dangling_link_as_root_means_going_without(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert_published_nowhere(Store(tmp_path / "link"))


def test_folder_of_another_user_means_going_without(open_folder: Path) -> None:
    (open_folder / "cache").mkdir(mode=0o500)
    with unprivileged():
        assert_published_nowhere(Store(open_folder / "cache"))
        assert_published_nowhere(Store(open_folder / "cache" / "below"))


def test_read_only_cache_is_loaded_from_without_a_word(open_folder: Path) -> None:
    store = Store(open_folder / "cache")
    published = publish(store)
    for path in (store.root, *store.root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    age(folder_of(published) / META, 9999)
    with unprivileged():
        assert load(store) == published
        assert [record.path for record in store.entries()] == [published.path]
        assert store.clear() == []
        assert_published_nowhere(store)
    assert load(store) == published


def test_cache_that_another_user_keeps_private_is_a_miss_and_means_going_without(open_folder: Path) -> None:
    store = Store(open_folder / "cache")
    published = publish(store)
    if os.geteuid() == 0:
        with unprivileged():
            assert load(store) is None
            assert store.entries() == []
            assert_published_nowhere(store)
    assert load(store) == published


def test_file_size_limit_leaves_nothing_partial(store: Store) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(CUBIN_BYTES) // 2, hard))  # a real short write, then a real error
    try:
        assert_published_nowhere(store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert aside(store) == []
    assert publish(store) == load(store)


def test_full_disk_leaves_nothing_partial(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = os.open

    def open_full(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        full = Path(path).name == CUBIN and flags & os.O_CREAT
        return really_open("/dev/full", os.O_WRONLY) if full else really_open(path, flags, *rest, **more)

    with monkeypatch.context() as broken:
        broken.setattr(os, "open", open_full)
        assert_published_nowhere(store)
    assert aside(store) == []
    assert publish(store) == load(store)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EXDEV])
@pytest.mark.parametrize("call", ["mkdir", "open", "fsync", "rename"])
def test_any_call_that_fails_leaves_nothing_partial(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    really_open = os.open

    def open_to_read(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        return refusing(number)() if flags & os.O_CREAT else really_open(path, flags, *rest, **more)

    with monkeypatch.context() as broken:
        broken.setattr(os, call, open_to_read if call == "open" else refusing(number))
        assert_published_nowhere(store)
    assert aside(store) == []
    assert publish(store) == load(store)


def test_disk_that_cannot_sync_a_folder_is_good_enough(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def no_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    open_files = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(os, "fsync", no_folders)
    assert publish(store) == load(store)
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files


# Size and last use


def test_trim_removes_the_least_recently_used_first(store: Store) -> None:
    for position, text in enumerate("dacb"):
        age(folder_of(publish(store, text)) / META, 4 * 3600 - position * 3600)
    assert load(store, "d")  # the oldest, but used just now
    sizes = {record.key: record.bytes for record in store.entries()}
    removed = store.trim(2 * max(sizes.values()))
    assert [record.key for record in removed] == [key_of(text)[:12] for text in "ac"]
    assert [load(store, text) is not None for text in "abcd"] == [False, True, False, True]


def test_trim_within_the_limit_removes_nothing(store: Store) -> None:
    publish(store)
    assert store.trim(store.info()["bytes"]) == []
    assert len(store.trim(store.info()["bytes"] - 1)) == 1


def test_use_is_recorded_at_most_once_an_hour(store: Store) -> None:
    meta = folder_of(publish(store)) / META
    for seconds, recorded in ((3500, False), (3700, True), (-50, True), (-9e8, True)):
        age(meta, seconds)
        before = meta.stat().st_mtime
        assert load(store)
        assert (meta.stat().st_mtime != before) == recorded, seconds
        assert (abs(meta.stat().st_mtime - time.time()) < 60) == recorded, seconds


def test_last_use_in_the_future_counts_as_now(store: Store) -> None:
    age(folder_of(publish(store)) / META, -9e8)
    (record,) = store.entries()
    assert abs(record.used - time.time()) < 60


def test_entry_without_facts_is_the_first_to_go(store: Store) -> None:
    age(folder_of(publish(store, "good")) / META, 9e8)
    (folder_of(publish(store, "bad")) / META).unlink()
    (removed,) = store.trim(store.info()["bytes"] - 1)
    assert removed.key == key_of("bad")[:12]


def test_publish_keeps_to_the_limit_but_never_drops_the_entry_just_published(store: Store) -> None:
    publish(store)
    size = store.info()["bytes"]
    small = Store(store.root, limit_bytes=4 * size)
    for number in range(12):
        entry = publish(small, f"{number:02}")
        assert load(small, f"{number:02}") == entry
        assert small.info()["bytes"] <= 4 * size
    tiny = Store(store.root, limit_bytes=1)
    last = publish(tiny, "last")
    assert [record.path for record in tiny.entries()] == [last.path]


def test_publish_does_not_walk_the_cache_each_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    walks = 0
    entries = Store.entries

    def counted(self: Store) -> list[store_module.Record]:
        nonlocal walks
        walks += 1
        return entries(self)

    monkeypatch.setattr(Store, "entries", counted)
    store.limit_bytes = 1 << 30
    for number in range(10):
        publish(store, str(number))
    assert walks == 1


def test_without_a_limit_nothing_is_trimmed(store: Store) -> None:
    for number in range(5):
        publish(store, str(number))
    assert len(store.entries()) == 5


def test_entries_tell_name_arch_key_size_and_last_use(store: Store) -> None:
    published = publish(store)
    store.publish("softmax_e32", "sm_75", key_of("b"), SOURCE_TEXT, CUBIN_BYTES, {})
    first, second = store.entries()
    assert (first.name, first.arch, first.key) == ("softmax_e32", "sm_75", key_of("b")[:12])
    assert (second.name, second.arch, second.key, second.path) == (NAME, ARCH, key_of()[:12], published.path)
    assert second.bytes == sum(path.stat().st_size for path in folder_of(published).iterdir())
    assert abs(second.used - time.time()) < 60
    total = first.bytes + second.bytes
    assert store.info() == {"path": str(store.root), "entries": 2, "bytes": total, "limit_bytes": None}


def test_clear_removes_every_entry_and_no_stranger(store: Store) -> None:
    folders = [publish(store, text).path for text in "ab"]
    strangers = ["notes.txt", "v1/notes.txt", f"v1/{ARCH}/notes", "v1/other/a-000000000000", "v2"]
    for stranger in strangers:
        (store.root / stranger).mkdir(parents=True)
    assert {record.path for record in store.clear()} == set(folders)
    assert store.entries() == store.clear() == []
    assert all((store.root / stranger).exists() for stranger in strangers)


def test_verify_of_a_good_cache_finds_nothing(store: Store) -> None:
    assert store.verify() == []
    publish(store)
    assert store.verify() == []


def test_verify_names_what_is_damaged_and_removes_nothing(store: Store) -> None:
    publish(store, "good")
    bad = folder_of(publish(store, "bad"))
    (bad / CUBIN).write_bytes(CUBIN_BYTES[:-1])
    ((record, problem),) = store.verify()
    assert record.path == bad
    assert CUBIN in problem
    assert bad.exists()
