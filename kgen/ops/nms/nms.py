"""Non-maximum suppression: which boxes stay when each suppresses those of a lower score that overlap it too much.

Three launches and no wait between them: places by score, overlaps of all pairs as bits, and a sweep over the tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kgen.dtypes import F64, I32, I64
from kgen.launch import Step, bind
from kgen.operand import INT_MAX, Operand
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.nms.kernels import BOXES, OVERLAP, PAIRS, RANK, RANK_BOXES, SWEEP, TILE, real_of
from kgen.ops.options import check_real, whole
from kgen.scratch import Sections


def nms(
    boxes: Any,
    scores: Any,
    iou_threshold: float,
    *,
    score_threshold: float | None = None,
    max_output: int | None = None,
    offset: float = 0,
    padded: bool = False,
    stream: Any = None,
) -> Any:
    """Indices of the boxes that are kept, by descending score: no two of them have an IoU above the threshold.

    Parameters
    ----------
    boxes : array [N, 4]
        Left, top, right and bottom; float32, float16, bfloat16 or float64, of any strides.
    scores : array [N]
        Of the same dtype. Among equal scores the lower index comes first. NaN comes last, as in NumPy's sort.
    iou_threshold : float
        In [0, 1]. A box is suppressed if its IoU with one that is kept is strictly above. An IoU that is NaN, as of two
        boxes without area, suppresses nothing.
    score_threshold : float, optional
        Boxes whose score is not above it are left out, and suppress nothing. It is rounded to the dtype of the scores.
    max_output : int, optional
        The most indices to return.
    offset : float
        Added to every width and height: 1 if the right and bottom pixels belong to the box.
    padded : bool
        Return without waiting for the device: `max_output` (by default N) indices, padded with -1, and their count.
    stream : optional
        A CuPy or torch stream or a pointer; by default the current stream of the arrays' library.

    Returns
    -------
    array of int64, of the inputs' kind; with `padded`, (indices, count), where count is a 0-d int64 array.

    Overlaps are computed in float32, or float64 for float64 boxes, with every operation rounded as in NumPy.

    Raises
    ------
    TypeError, ValueError
        For arrays that do not fit together; the message names the argument, what was passed and what is accepted.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]], "f")
    >>> with kgen.backend("cpu"):
    ...     kgen.nms(boxes, np.array([0.5, 0.9, 0.1], "f"), 0.5)
    array([1, 2])
    """
    options = (iou_threshold, score_threshold, max_output, offset, padded)
    return _finish(_nms((boxes, scores), (None, None), options, stream), padded)


def batched_nms(
    boxes: Any,
    scores: Any,
    idxs: Any,
    iou_threshold: float,
    *,
    score_threshold: float | None = None,
    max_output: int | None = None,
    offset: float = 0,
    padded: bool = False,
    stream: Any = None,
) -> Any:
    """`nms` within each class: only boxes with the same entry in `idxs` suppress each other.

    Parameters
    ----------
    boxes, scores, iou_threshold, score_threshold, max_output, offset, padded, stream
        As in `nms`.
    idxs : array [N]
        The class of each box, or its image, or both in one number; int32 or int64.

    Returns
    -------
    As `nms`: indices over all classes by descending score.

    Raises
    ------
    TypeError, ValueError
        As in `nms`.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 1.9]], "f")
    >>> with kgen.backend("cpu"):
    ...     kgen.batched_nms(boxes, np.array([0.5, 0.9], "f"), np.array([7, 8]), 0.5)
    array([1, 0])
    """
    options = (iou_threshold, score_threshold, max_output, offset, padded)
    return _finish(_batched_nms((boxes, scores, idxs), (None, None), options, stream), padded)


def _finish(found: Sequence[Any], padded: bool) -> Any:
    kept, count = found
    return (kept, count) if padded else kept[: int(count)]


def _results(
    op: str,
    given: Sequence[Operand],
    iou_threshold: float,
    score_threshold: float | None,
    max_output: int | None,
    offset: float,
    padded: bool,
) -> Results:
    boxes, scores, *idxs = given
    if len(boxes.shape) != 2 or boxes.shape[1] != 4:
        raise ValueError(f"{op}: boxes has shape {boxes.shape}; it takes [N, 4]")
    for operand in (scores, *idxs):
        if operand.shape != boxes.shape[:1]:
            raise ValueError(
                f"{op}: {operand.argument} has shape {operand.shape}; with boxes {boxes.shape} it takes "
                f"{boxes.shape[:1]}"
            )
    if scores.dtype is not boxes.dtype:
        raise TypeError(
            f"{op}: boxes is {boxes.dtype.numpy_name} and scores {scores.dtype.numpy_name}; both must have one dtype"
        )
    check_real(op, iou_threshold=iou_threshold, offset=offset)
    if score_threshold is not None:
        check_real(op, score_threshold=score_threshold)
    room = boxes.shape[0]
    if max_output is not None:
        room = whole(op, "max_output", max_output, 0, INT_MAX if padded else None)
    if not 0 <= iou_threshold <= 1:
        raise ValueError(f"{op}: iou_threshold is {iou_threshold}; it takes a number from 0 to 1")
    if boxes.shape[0] > MOST:
        raise ValueError(f"{op}: boxes has shape {boxes.shape}; it takes up to {MOST} boxes")
    return [((room if padded else min(room, boxes.shape[0]),), I64), ((), I64)]


MOST = 24576 * TILE
"""Boxes that are taken; their overlaps would take 154 GB."""


def _prepare(
    op: str,
    given: Sequence[Operand],
    results: Sequence[Operand],
    iou_threshold: float,
    score_threshold: float | None,
    max_output: int | None,
    offset: float,
    padded: bool,
) -> Plan:
    boxes, scores, *idxs = given
    kept, _ = results
    count, device = boxes.shape[0], kept.device
    tiles = max(1, -(-count // TILE))
    real = real_of(boxes.dtype)
    double = real is F64
    thresholded = score_threshold is not None

    rank = RANK.spec(CLASS_BYTES=idxs[0].dtype.itemsize if idxs else 0, dtype=boxes.dtype)
    strides = (*boxes.strides, scores.strides[0], *(x.strides[0] for x in idxs))
    first = Step(rank, -(-count // RANK_BOXES), 6 + 2 * len(idxs), (count,), strides)
    numbers = (float(iou_threshold), *([float(offset)] if offset else []))
    second = _with(
        Step(
            OVERLAP.spec(classes=bool(idxs), offset=bool(offset), dtype=real),
            tiles * -(-tiles // PAIRS),
            2 + len(idxs),
            (count, tiles),
        ),
        numbers,
        double,
    )
    sweep = SWEEP.spec(thresholded=thresholded, dtype=real)
    last = Step(sweep, tiles, 5 + thresholded, (count, tiles, kept.shape[0]))
    if score_threshold is not None:
        with np.errstate(over="ignore"):  # beyond all scores it is infinite
            threshold = scores.dtype.numpy.type(float(score_threshold))
        last = _with(last, (float(threshold),), double)

    # What lies in the memory between the launches.
    sizes = {
        "boxes": 4 * real.itemsize * count,
        "states": 16 * tiles,
        "suppressors": 8 * TILE * tiles * (tiles + 1) // 2,
        "classes": 8 * count * len(idxs),
        "scores": real.itemsize * count,
        "order": 4 * count,
    }
    sections = Sections(tuple(sizes.values()), device)
    steps = [first, second, last] if count else [last]
    runs = bind(steps, device)

    def launch(pointers: Sequence[int], stream: int) -> None:
        *inputs, kept, kept_count = pointers
        rooms, _held = sections.take(stream)
        place = dict(zip(sizes, rooms))
        classes = [place["classes"]] * len(idxs)
        held = [place["scores"]] * thresholded
        order, states, suppressors = place["order"], place["states"], place["suppressors"]
        if count:
            runs[0]((*inputs, place["boxes"], place["scores"], *classes, order, states), stream)
            runs[1]((place["boxes"], *classes, suppressors), stream)
        runs[-1]((*held, order, suppressors, states, kept, kept_count), stream)

    return Plan(launch, tuple(map(str, steps)), f"{count} boxes make {tiles} tiles of {TILE}")


def _with(step: Step, numbers: tuple[float, ...], double: bool) -> Step:
    return step._replace(doubles=numbers) if double else step._replace(floats=numbers)


_OPTIONS = ("iou_threshold", "score_threshold", "max_output", "offset", "padded")
_TAKES = {"boxes": BOXES, "scores": BOXES, "idxs": (I64, I32)}
_nms = Operator("nms", ("boxes", "scores"), _OPTIONS, _results, _prepare, takes=_TAKES, mixed=True, rows=False)
_batched_nms = Operator(
    "batched_nms", ("boxes", "scores", "idxs"), _OPTIONS, _results, _prepare, takes=_TAKES, mixed=True, rows=False
)
