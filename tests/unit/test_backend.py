"""Which device computes NumPy arrays."""

from __future__ import annotations

import sys
import threading
import warnings

import numpy as np
import pytest

import kgen
from kgen.arrays import adopt
from kgen.config import ConfigError
from kgen.dtypes import F32
from kgen.errors import DeviceError
from kgen.results import allocate, check_out, give_back

module = sys.modules["kgen.backend"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.delenv("KGEN_BACKEND", raising=False)
    monkeypatch.setattr(module, "_gpu_usable", lambda: False)
    module._say_once.cache_clear()
    yield
    module._say_once.cache_clear()


def test_without_a_gpu_the_executor_computes_and_says_so_once():
    with pytest.warns(RuntimeWarning, match="finds no GPU here: NumPy arrays are computed by its CPU executor"):
        assert module.device_for_numpy() == module.HOST
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert module.device_for_numpy() == module.HOST


def test_a_choice_is_taken_in_silence(monkeypatch):
    monkeypatch.setenv("KGEN_BACKEND", "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert module.device_for_numpy() == module.HOST


def test_the_context_overrides_the_environment_for_its_thread_only(monkeypatch):
    monkeypatch.setenv("KGEN_BACKEND", "cpu")
    seen = []

    def look():
        seen.append(module.device_for_numpy())

    with kgen.backend("gpu"):
        with pytest.raises(DeviceError):
            module.device_for_numpy()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    look()
    assert seen == [module.HOST] * 2


@pytest.mark.parametrize("name", ["", "cuda", "CPU"])
def test_an_unknown_backend_is_refused_with_those_there_are(name, monkeypatch):
    with pytest.raises(ConfigError, match="one of auto, gpu, cpu"), kgen.backend(name):
        pass
    if name:
        monkeypatch.setenv("KGEN_BACKEND", name)
        with pytest.raises(ConfigError, match="one of auto, gpu, cpu"):
            module.device_for_numpy()


def test_an_array_is_read_and_written_in_place_with_its_own_strides():
    x = np.arange(24, dtype="f").reshape(2, 3, 4)[:, ::-1]
    with kgen.backend("cpu"):
        operand = adopt(x, "op", "x")
        assert (operand.ptr, operand.strides, operand.device) == (x.ctypes.data, (12, -4, 1), module.HOST)
        out = np.empty((2, 3), "f")
        assert give_back(check_out(out, (2, 3), F32, [operand], "op"), 0) is out
        fresh = give_back(allocate("numpy", (2, 3), F32, module.HOST, 0), 0)
        assert type(fresh) is np.ndarray and fresh.shape == (2, 3)
        with pytest.raises(ValueError, match="out shares memory with x"):
            check_out(x, x.shape, F32, [operand], "op")
