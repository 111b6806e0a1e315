"""What a repeated call reads off torch's tensors, on torch itself; CuPy's arrays are read in test_calls.py."""

from __future__ import annotations

import gc
import types
import weakref

import numpy as np
import pytest

from kgen.ops import libraries

torch = pytest.importorskip("torch", reason="what is read are torch's tensors")


@pytest.fixture(params=["in C++", "in Python"])
def alike(request, monkeypatch):
    """A test for tensors like those that it is made of, as torch's compiler has it, or as any torch can have it."""
    monkeypatch.setattr(libraries, "current_device", lambda: None)
    library = libraries.TorchTensors(torch)
    if request.param == "in Python":
        library._guards = None

    def make(*tensors):
        names = [f"x{i}" for i in range(len(tensors))]
        text, known = library.alike(dict(zip(names, tensors, strict=True)))
        return lambda *others: bool(eval(text, dict(known, **dict(zip(names, others, strict=True)))))

    return make


def tensor(*, dtype=torch.float32, shape=(4, 6), **traits):
    return torch.zeros(shape, dtype=dtype, **traits)


OTHERS = {
    "dtype": lambda: tensor(dtype=torch.bfloat16),
    "width": lambda: tensor(dtype=torch.int32),
    "shape": lambda: tensor(shape=(6, 4)),
    "rank": lambda: tensor(shape=(24,)),
    "strides": lambda: tensor(shape=(6, 4)).T,
    "a broadcast": lambda: tensor(shape=(1, 6)).expand(4, 6),
    "device": lambda: tensor(device="meta"),
    "gradient": lambda: tensor(requires_grad=True),
    "a parameter": lambda: torch.nn.Parameter(tensor(), requires_grad=False),
    "a subclass": lambda: tensor().as_subclass(type("Own", (torch.Tensor,), {})),
    "sparse": lambda: tensor().to_sparse(),
    "negated later": lambda: torch.zeros((4, 6), dtype=torch.complex64).conj().imag.contiguous()._neg_view(),
    "None": lambda: None,
    "a number": lambda: 1.5,
    "NumPy's": lambda: np.zeros((4, 6), "f"),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_only_tensors_pass_that_differ_in_no_more_than_where_they_lie(alike, other):
    test = alike(tensor(), tensor(shape=(6,)))
    apart = tensor(shape=(3, 4, 6))[1]  # another place, of other memory
    assert test(apart, tensor(shape=(6,)))
    assert not test(other(), tensor(shape=(6,)))
    assert not test(tensor(), other())


def test_a_tensor_that_needs_a_gradient_passes_while_none_is_recorded(alike):
    with torch.no_grad():
        test = alike(tensor(requires_grad=True))
        assert test(tensor(requires_grad=True))
    assert not test(tensor(requires_grad=True))


def test_tensors_within_a_transformation_do_not_pass(alike):
    """Within torch.func they have no memory that a kernel could read."""
    test = alike(tensor())
    seen = []
    torch.func.vmap(lambda x: seen.append(test(x)) or x)(tensor(shape=(2, 4, 6)))
    assert seen == [False]


def test_a_test_keeps_no_tensor_alive(alike):
    x = tensor()
    test, gone = alike(x), weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    assert test(tensor())


def test_a_torch_whose_compiler_tests_otherwise_is_read_in_python(monkeypatch):
    monkeypatch.setattr(libraries, "current_device", lambda: None)
    library = libraries.TorchTensors(torch)
    library._guards = lambda *tensors: types.SimpleNamespace(check=None)  # takes no dynamic_dims_sizes
    text, known = library.alike({"x": tensor()})
    assert eval(text, dict(known, x=tensor()))
    assert not eval(text, dict(known, x=tensor(dtype=torch.float16)))
