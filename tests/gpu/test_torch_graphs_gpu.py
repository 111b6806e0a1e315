"""Operators on torch tensors, in graphs and on streams of torch: whatever came before, they write the same bits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import kgen

pytestmark = pytest.mark.gpu

HEADS = (1, 8, 700, 128)
ROWS = (300, 1000)

CALLS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "add": (kgen.add, (ROWS, ROWS)),
    "sum": (lambda x: kgen.sum(x), (ROWS,)),
    "argmax": (lambda x: kgen.argmax(x, axis=1), (ROWS,)),
    "softmax": (kgen.softmax, (ROWS,)),
    "softmax of all": (lambda x: kgen.softmax(x, axis=None), (ROWS,)),
    "layer_norm": (kgen.layer_norm, (ROWS, ROWS[1:], ROWS[1:])),
    "gemv": (kgen.gemv, (ROWS, ROWS[1:])),
    "transpose": (lambda x: kgen.transpose(x, (1, 0)), (ROWS,)),
    "causal_dot_product": (kgen.causal_dot_product, (HEADS,) * 3),
    "linear_attention": (kgen.linear_attention, (HEADS,) * 3),
    "linear_attention_backward": (kgen.linear_attention_backward, (HEADS,) * 4),
    "gla": (lambda q, k, v, g: kgen.gla(q, k, v, -abs(g)), (HEADS,) * 4),
    "gla_backward": (lambda do, q, k, v, g: kgen.gla_backward(do, q, k, v, -abs(g)), (HEADS,) * 5),
    "rwkv6": (lambda r, k, v, w, u: kgen.rwkv6(r, k, v, -abs(w), u), (*(HEADS,) * 4, (8, 128))),
    "rwkv6_backward": (
        lambda do, r, k, v, w, u: kgen.rwkv6_backward(do, r, k, v, -abs(w), u),
        (*(HEADS,) * 5, (8, 128)),
    ),
}


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("name", CALLS)
def test_a_replay_writes_what_a_call_writes(name, dtype):
    torch = pytest.importorskip("torch")
    operator, shapes = CALLS[name]
    torch.manual_seed(len(name))
    inputs = [torch.randn(shape, device="cuda").to(getattr(torch, dtype)) for shape in shapes]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        operator(*inputs)  # compiles; a capture compiles nothing
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = operator(*inputs)
    for _ in range(2):
        for x in inputs:
            x.copy_(torch.randn_like(x))
        torch.cuda.synchronize()
        junk = [torch.full((1 << 22,), float("nan"), device="cuda") for _ in range(8)]  # reuses what is not held
        graph.replay()
        torch.cuda.synchronize()
        del junk
        expected = operator(*inputs)
        assert _bits(captured) == _bits(expected)


def test_captures_of_any_number_of_blocks_leave_the_next_ones_where_they_can_meet():
    """The blocks of a softmax over everything send one another messages of 16 bytes, in memory that captures share."""
    torch = pytest.importorskip("torch")
    for width in (100_000, 300_000, 300_001, 250_000):
        x = torch.randn(width, device="cuda")
        expected = kgen.softmax(x, axis=None)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = kgen.softmax(x, axis=None)
        graph.replay()
        assert torch.equal(captured, expected)


@pytest.mark.parametrize("seed", range(4))
def test_calls_captures_and_replays_on_any_stream_in_any_order_write_the_same_bits(seed):
    """What operators keep between calls (memory in which blocks meet, loaded kernels) must not show."""
    torch = pytest.importorskip("torch")
    rng = random.Random(seed)
    torch.manual_seed(seed)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    tasks = []
    for name, (operator, shapes) in CALLS.items():
        for dtype in (torch.float32, torch.bfloat16):
            inputs = [torch.randn(shape, device="cuda").to(dtype) for shape in shapes]
            tasks.append((name, operator, inputs, _bits(operator(*inputs))))
    torch.cuda.synchronize()
    graphs, written = [], []
    for _ in range(300):
        name, operator, inputs, expected = rng.choice(tasks)
        stream = rng.choice(streams)
        with torch.cuda.stream(stream):
            way = rng.random()
            if way < 0.15:
                graph = torch.cuda.CUDAGraph()
                torch.cuda.synchronize()
                with torch.cuda.graph(graph):
                    captured = operator(*inputs)
                graphs.append((name, graph, captured, expected))
            elif way < 0.4 and graphs:
                name, graph, captured, expected = rng.choice(graphs)
                torch.cuda.synchronize()  # a graph must not run beside itself
                graph.replay()
                written.append((name, "replay", [x.clone() for x in _each(captured)], expected))
            else:
                written.append((name, "call", operator(*inputs), expected))
    torch.cuda.synchronize()
    for name, way, results, expected in written:
        assert _bits(results) == expected, (seed, name, way)


def _each(results: Any) -> Any:
    return results if isinstance(results, (tuple, list)) else (results,)


def _bits(results: Any) -> list[bytes]:
    import torch

    return [x.contiguous().view(-1).cpu().view(torch.uint8).numpy().tobytes() for x in _each(results)]
