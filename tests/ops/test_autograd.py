"""kgen.autograd: gradients through an operator are those of its formula, as torch differentiates it in float64."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import kgen
from kgen import autograd

torch = pytest.importorskip("torch", reason="gradients are recorded by torch")
F = torch.nn.functional

B, H, T, K, V = 2, 3, 37, 8, 6
ROWS, COLUMNS, SQUARE = (4, 5, 33), (33,), (3, 9, 9)
QKV = {"q": (B, H, T, K), "k": (B, H, T, K), "v": (B, H, T, V)}
GATED = QKV | {"g": (B, H, T, K)}
START = {"initial_state": (B, H, K, V)}
Shapes = dict[str, tuple[int, ...]]


def walk(q, k, v, g=None, u=None, *, initial_state=None, scale=K**-0.5, reverse=False, return_state=False):
    """The recurrence, one time step after another."""
    state, outputs = 0 if initial_state is None else initial_state, {}
    for t in range(T)[:: -1 if reverse else 1]:
        outer, before = k[:, :, t, :, None] * v[:, :, t, None, :], state
        gate = 1 if g is None else g[:, :, t].exp()[(..., None) if g.ndim == 4 else (..., None, None)]
        state = gate * state + outer
        read = state if u is None else before + u[None, :, :, None] * outer
        outputs[t] = scale * (q[:, :, t, :, None] * read).sum(2)
    o = torch.stack([outputs[t] for t in range(T)], 2)
    return (o, state) if return_state else o


def normalized(q, k, v, initial_state, initial_normalizer):
    """Linear attention with `MAPPED`."""
    wide = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    start = torch.cat([initial_state, initial_normalizer[..., None]], -1)
    o, state = walk((q / 2).exp(), (k / 2).exp(), wide, initial_state=start, return_state=True)
    return o[..., :-1] / (o[..., -1:] + 1e-6), state[..., :-1], state[..., -1]


MAPPED = {"feature_map": "exp(x / 2)", "feature_slope": "exp(x / 2) / 2", "normalize": True, "return_state": True}
MASK = torch.ones(9, 9).tril().log()


class Case(NamedTuple):
    """A call of an operator, and its formula; both take the inputs by position, but for what a state starts from."""

    operator: str
    inputs: Shapes
    options: dict[str, Any]
    formula: Callable[..., Any]


CASES = {
    "causal_dot_product": Case("causal_dot_product", QKV, {}, lambda *x: walk(*x, scale=1)),
    "reverse": Case("causal_dot_product", QKV, {"reverse": True}, lambda *x: walk(*x, scale=1, reverse=True)),
    "linear_attention": Case("linear_attention", QKV, {}, walk),
    "normalized": Case("linear_attention", QKV | START | {"initial_normalizer": (B, H, K)}, MAPPED, normalized),
    "simple_gla": Case("simple_gla", QKV | {"g": (B, H, T)}, {"scale": 0.5}, lambda *x: walk(*x, scale=0.5)),
    "gla": Case("gla", GATED, {}, walk),
    "gla, states": Case(
        "gla", GATED | START, {"return_state": True}, lambda *x: walk(*x[:4], initial_state=x[4], return_state=True)
    ),
    "rwkv6": Case("rwkv6", GATED | {"u": (H, K)}, {"return_state": True}, lambda *x: walk(*x, return_state=True)),
    "softmax": Case("softmax", {"x": ROWS}, {"axis": 1, "scale": 2}, lambda x: (2 * x).softmax(1)),
    "causal": Case("softmax", {"x": SQUARE}, {"axis": -1, "causal": True}, lambda x: (x + MASK).softmax(-1)),
    "log_softmax": Case("log_softmax", {"x": ROWS}, {"axis": -1, "scale": 2}, lambda x: (2 * x).log_softmax(-1)),
    "layer_norm": Case(
        "layer_norm", {"x": ROWS, "w": COLUMNS, "b": COLUMNS}, {}, lambda x, w, b: F.layer_norm(x, COLUMNS, w, b)
    ),
    "no bias": Case("layer_norm", {"x": ROWS, "w": COLUMNS}, {}, lambda x, w: F.layer_norm(x, COLUMNS, w)),
    "no weight": Case("layer_norm", {"x": ROWS}, {}, lambda x: F.layer_norm(x, COLUMNS)),
    "rms_norm": Case("rms_norm", {"x": ROWS, "w": COLUMNS}, {}, lambda x, w: F.rms_norm(x, COLUMNS, w, 1e-6)),
    "elu": Case("elu", {"x": ROWS}, {}, F.elu),
    "gelu": Case("gelu", {"x": ROWS}, {}, F.gelu),
    "gelu_tanh": Case("gelu_tanh", {"x": ROWS}, {}, lambda x: F.gelu(x, approximate="tanh")),
    "hardsigmoid": Case("hardsigmoid", {"x": ROWS}, {}, F.hardsigmoid),
    "hardswish": Case("hardswish", {"x": ROWS}, {}, F.hardswish),
    "leaky_relu": Case("leaky_relu", {"x": ROWS}, {}, F.leaky_relu),
    "relu": Case("relu", {"x": ROWS}, {}, F.relu),
    "sigmoid": Case("sigmoid", {"x": ROWS}, {}, torch.sigmoid),
    "silu": Case("silu", {"x": ROWS}, {}, F.silu),
    "softplus": Case("softplus", {"x": ROWS}, {}, F.softplus),
    "tanh": Case("tanh", {"x": ROWS}, {}, torch.tanh),
}


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Where tensors lie. kgen takes none of the CPU's: there its operators are given NumPy's views of them."""
    if request.param == "gpu":
        yield "cuda"
        return

    def array(x: Any) -> Any:
        return x.numpy() if isinstance(x, torch.Tensor) else x

    def tensor(y: Any) -> Any:
        return tuple(map(torch.from_numpy, y)) if isinstance(y, tuple) else torch.from_numpy(y)

    def viewing(operator: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *inputs, **options: tensor(
            operator(*map(array, inputs), **{name: array(x) for name, x in options.items()})
        )

    for name in {case.operator for case in CASES.values()}:
        for each in (name, f"{name}_backward"):
            monkeypatch.setattr(kgen, each, viewing(getattr(kgen, each)))
    with kgen.backend("cpu"):
        yield "cpu"


def arrays_of(case: Case, device: str) -> dict[str, Any]:
    torch.manual_seed(1)
    made = {name: torch.randn(shape, dtype=torch.float64).float() for name, shape in case.inputs.items()}
    if "g" in made:
        made["g"] = F.logsigmoid(made["g"])
    return {name: x.to(device).requires_grad_() for name, x in made.items()}


def call(case: Case, inputs: dict[str, Any]) -> tuple[Any, ...]:
    named = {name: x for name, x in inputs.items() if name.startswith("initial")}
    results = getattr(autograd, case.operator)(
        *[x for name, x in inputs.items() if name not in named], **named, **case.options
    )
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_formula(name, device):
    case = CASES[name]
    inputs = arrays_of(case, device)
    results = call(case, inputs)
    exact = {name: x.detach().cpu().double().requires_grad_() for name, x in inputs.items()}
    wanted = case.formula(*exact.values())
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    weights = [torch.randn(y.shape, dtype=torch.float64).float() for y in wanted]
    sum((y.cpu() * w).sum() for y, w in zip(results, weights, strict=True)).backward()
    sum((y * w).sum() for y, w in zip(wanted, weights, strict=True)).backward()
    for y, z in zip(results, wanted, strict=True):
        torch.testing.assert_close(y.cpu().double(), z, rtol=2e-5, atol=2e-5)
    for argument, x in inputs.items():
        torch.testing.assert_close(
            x.grad.cpu().double(),
            exact[argument].grad,
            rtol=1e-4,
            atol=1e-4,
            msg=lambda text, at=argument: f"{at}: {text}",
        )


def test_every_operator_with_a_gradient_is_here():
    differentiable = {name for name in kgen.__all__ if f"{name}_backward" in kgen.__all__}
    assert differentiable == {case.operator for case in CASES.values()}


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_a_gradient_reaches_what_is_asked_for_and_a_second_one_is_refused(device):
    inputs = arrays_of(CASES["gla"], device)
    inputs["q"].requires_grad_(False)
    o = call(CASES["gla"], inputs)[0]
    dk = torch.autograd.grad(o.square().sum(), inputs["k"], create_graph=True)[0]
    assert inputs["q"].grad is None
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dk.sum().backward()


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_model_calls_it_as_it_is(device):
    inputs = arrays_of(CASES["gla"], device)
    model = torch.compile(lambda q, k, v, g: (autograd.gla(q, k, v, g.clamp(max=0)) * 2).sum(), backend="eager")
    model(**inputs).backward()
    compiled = {name: x.grad.clone() for name, x in inputs.items()}
    for x in inputs.values():
        x.grad = None
    (call(CASES["gla"], inputs)[0] * 2).sum().backward()
    for name, x in inputs.items():
        torch.testing.assert_close(compiled[name], x.grad, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [
        ("gla", ["q", "k", "v", "g"], {}),
        ("simple_gla", ["q", "k", "v", "g"], {}),
        ("rwkv6", ["r", "k", "v", "w", "u"], {}),
        ("elu", ["x"], {"alpha": 2.0}),
        ("leaky_relu", ["x"], {"negative_slope": 0.5}),
        ("softplus", ["x"], {"beta": 2.0}),
    ],
)
def test_arguments_have_the_names_that_they_have_in_kgen(name, arguments, options, device):
    inputs = list(arrays_of(CASES[name], device).values())
    y = getattr(autograd, name)(**dict(zip(arguments, inputs, strict=True)), **options)
    assert torch.equal(y, getattr(kgen, name)(*(x.detach() for x in inputs), *options.values()))
    assert torch.autograd.grad(y.sum(), inputs)[0].isfinite().all()
    with pytest.raises(TypeError, match=f"{name}.. got an unexpected keyword argument 'out'"):
        getattr(autograd, name)(*inputs, out=y)


def test_what_needs_no_gradient_is_computed_as_by_kgen():
    x = np.arange(-3, 4, dtype="f")
    with kgen.backend("cpu"):
        assert np.array_equal(autograd.relu(x), kgen.relu(x))
        with pytest.raises(TypeError, match="relu: x is a list"):
            autograd.relu([1.0])


def test_nothing_is_recorded_where_no_gradient_is_asked_for(device):
    inputs = arrays_of(CASES["gla, states"], device)
    with torch.no_grad():
        assert not any(y.requires_grad for y in call(CASES["gla, states"], inputs))
    assert not call(CASES["gla"], {name: x.detach() for name, x in inputs.items() if name in GATED})[0].requires_grad


def test_a_bias_without_a_weight_is_refused():
    with pytest.raises(TypeError, match="pass a weight of ones"):
        autograd.layer_norm(torch.ones(2, 3), bias=torch.ones(3))


@pytest.mark.gpu
def test_torchs_compiler_is_not_imported_for_it():
    code = """if True:
        import sys, torch
        from kgen import autograd
        x = torch.ones(64, device="cuda", requires_grad=True)
        autograd.silu(x).sum().backward()
        assert x.grad is not None
        assert "torch._dynamo" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["gla", "rwkv6", "normalized", "causal_dot_product", "layer_norm", "softmax", "silu"])
def test_the_first_call_of_a_kind_also_loads_the_gradients_kernels(name, monkeypatch):
    shapes = {at: (1, *shape[1:]) if len(shape) > 2 else shape for at, shape in CASES[name].inputs.items()}
    case = CASES[name]._replace(inputs=shapes)  # a kind that no other test has met
    launch = importlib.import_module("kgen.launch")
    monkeypatch.setattr(launch, "_launchers", {})
    o = call(case, arrays_of(case, "cuda"))[0]
    known = set(launch._launchers)
    o.backward(torch.ones_like(o))
    assert known
    assert set(launch._launchers) == known


@pytest.mark.gpu
def test_an_input_that_is_changed_before_its_gradient_is_noticed():
    inputs = arrays_of(CASES["gla"], "cuda")
    o = call(CASES["gla"], inputs)[0]
    with torch.no_grad():
        inputs["k"].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()
