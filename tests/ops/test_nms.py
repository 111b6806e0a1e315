"""Non-maximum suppression against a greedy loop in NumPy: the same indices, on both devices."""

from __future__ import annotations

import numpy as np
import pytest

from kgen.ops.nms.nms import batched_nms, nms


def overlaps(box, boxes, offset):
    """The IoU of one box with each of several, in their own type."""
    one = boxes.dtype.type
    zero, offset = one(0), one(offset)
    width = np.minimum(box[2], boxes[:, 2]) - np.maximum(box[0], boxes[:, 0]) + offset
    height = np.minimum(box[3], boxes[:, 3]) - np.maximum(box[1], boxes[:, 1]) + offset
    both = np.maximum(width, zero) * np.maximum(height, zero)
    area = (boxes[:, 2] - boxes[:, 0] + offset) * (boxes[:, 3] - boxes[:, 1] + offset)
    own = (box[2] - box[0] + offset) * (box[3] - box[1] + offset)
    with np.errstate(all="ignore"):
        return both / (own + area - both)


def greedy(boxes, scores, threshold, *, classes=None, score_threshold=None, max_output=None, offset=0):
    if boxes.dtype == np.float16:
        boxes = boxes.astype(np.float32)
    order = np.argsort(-scores.astype(np.float64), kind="stable")
    if score_threshold is not None:
        order = order[scores[order] > scores.dtype.type(score_threshold)]
    stays = []
    with np.errstate(all="ignore"):
        while order.size:
            first, order = order[0], order[1:]
            stays.append(first)
            gone = overlaps(boxes[first], boxes[order], offset) > boxes.dtype.type(threshold)
            if classes is not None:
                gone &= classes[order] == classes[first]
            order = order[~gone]
    return np.array(stays[:max_output], np.int64)


def scene(rng, count, dtype=np.float32, crowd=10):
    """Boxes of which each meets about `crowd` others."""
    side = np.sqrt(max(count, 1) / crowd) * 10
    corner = rng.random((count, 2)) * side
    boxes = np.concatenate([corner, corner + rng.random((count, 2)) * 10], 1).astype(dtype)
    return boxes, rng.random(count).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 300, 2500])
def test_the_boxes_that_stay_are_those_of_the_greedy_loop(xp, asnumpy, shared_cache, dtype, count):
    boxes, scores = scene(np.random.default_rng(count), count, dtype)
    found = asnumpy(nms(xp.asarray(boxes), xp.asarray(scores), 0.4))
    assert found.dtype == np.int64
    assert found.tolist() == greedy(boxes, scores, 0.4).tolist()


@pytest.mark.parametrize("crowd", [1, 100, 1000])
@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.5, 1.0])
def test_every_threshold_and_crowd(xp, asnumpy, shared_cache, crowd, threshold):
    boxes, scores = scene(np.random.default_rng(7), 700, crowd=crowd)
    found = asnumpy(nms(xp.asarray(boxes), xp.asarray(scores), threshold))
    assert found.tolist() == greedy(boxes, scores, threshold).tolist()


def test_equal_scores_keep_their_order_and_equal_boxes_leave_the_first(xp, asnumpy, shared_cache):
    boxes, scores = scene(np.random.default_rng(1), 200)
    scores = np.round(scores, 1)
    assert asnumpy(nms(xp.asarray(boxes), xp.asarray(scores), 0.3)).tolist() == greedy(boxes, scores, 0.3).tolist()
    same = np.tile(boxes[:1], (200, 1))
    assert asnumpy(nms(xp.asarray(same), xp.ones(200, xp.float32), 0.3)).tolist() == [0]


def test_a_chain_of_boxes_that_each_suppress_the_next_is_decided_one_by_one(xp, asnumpy, shared_cache):
    left = np.arange(130, dtype=np.float32) * 4
    boxes = np.stack([left, np.zeros(130, "f"), left + 10, np.full(130, 10, "f")], 1)
    scores = np.linspace(1, 0, 130, dtype=np.float32)
    found = asnumpy(nms(xp.asarray(boxes), xp.asarray(scores), 0.4))
    assert found.tolist() == greedy(boxes, scores, 0.4).tolist() == list(range(0, 130, 2))


def test_touching_the_threshold_does_not_suppress(xp, asnumpy, shared_cache):
    boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 1]], np.float32)  # an IoU of exactly 1/2
    scores = np.array([1, 0.5], np.float32)
    assert asnumpy(nms(xp.asarray(boxes), xp.asarray(scores), 0.5)).tolist() == [0, 1]
    assert asnumpy(nms(xp.asarray(boxes), xp.asarray(scores), 0.499)).tolist() == [0]


def test_odd_boxes_and_scores_are_as_in_numpy(xp, asnumpy, shared_cache):
    boxes, scores = scene(np.random.default_rng(2), 150)
    boxes[3] = np.nan
    boxes[4, 2] = np.inf
    boxes[5] = [-np.inf, -np.inf, np.inf, np.inf]
    boxes[6:12, 2:] = boxes[6:12, :2]  # without an area
    boxes[12:20] = boxes[12:20][:, [2, 3, 0, 1]]  # reversed corners
    scores[30:40] = [np.nan, np.inf, -np.inf, 0.0, -0.0, np.nan, -1, 1, 0.0, -0.0]
    for threshold in (0.0, 0.3):
        found = asnumpy(nms(xp.asarray(boxes), xp.asarray(scores), threshold))
        assert found.tolist() == greedy(boxes, scores, threshold).tolist()


def test_classes_do_not_suppress_each_other(xp, asnumpy, shared_cache):
    rng = np.random.default_rng(3)
    boxes, scores = scene(rng, 500, crowd=50)
    for dtype in ("int32", "int64"):
        classes = rng.integers(-2, 3, 500).astype(dtype)
        found = asnumpy(batched_nms(xp.asarray(boxes), xp.asarray(scores), xp.asarray(classes), 0.3))
        assert found.tolist() == greedy(boxes, scores, 0.3, classes=classes).tolist()


@pytest.mark.parametrize(
    "options", [{"score_threshold": 0.6}, {"max_output": 7}, {"offset": 1}, {"score_threshold": 0.2, "max_output": 70}]
)
def test_options_are_those_of_the_loop(xp, asnumpy, shared_cache, options):
    boxes, scores = scene(np.random.default_rng(4), 400)
    found = asnumpy(nms(xp.asarray(boxes), xp.asarray(scores), 0.3, **options))
    assert found.tolist() == greedy(boxes, scores, 0.3, **options).tolist()


def test_padded_indices_and_their_count_need_no_wait(xp, asnumpy, shared_cache):
    boxes, scores = scene(np.random.default_rng(5), 100)
    expected = greedy(boxes, scores, 0.3)
    indices, count = nms(xp.asarray(boxes), xp.asarray(scores), 0.3, max_output=128, padded=True)
    assert int(count) == expected.size
    assert asnumpy(indices).tolist() == expected.tolist() + [-1] * (128 - expected.size)


def test_more_output_than_there_are_boxes_is_as_much_as_there_can_be(xp, asnumpy, shared_cache):
    boxes, scores = scene(np.random.default_rng(8), 100)
    given = xp.asarray(boxes), xp.asarray(scores)
    for most in (101, 2**31, 2**63):
        assert asnumpy(nms(*given, 0.3, max_output=most)).tolist() == greedy(boxes, scores, 0.3).tolist()
    with pytest.raises(ValueError, match="max_output is 2147483648; it takes an integer up to 2147483647"):
        nms(*given, 0.3, max_output=2**31, padded=True)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_a_score_that_is_the_threshold_in_its_own_type_is_not_above_it(xp, asnumpy, shared_cache, dtype):
    boxes = np.array([[0, 0, 1, 1], [5, 5, 6, 6]], dtype)
    scores = np.array([0.3, 0.5], dtype)  # as float16 and float32, 0.3 is a little more
    assert asnumpy(nms(xp.asarray(boxes), xp.asarray(scores), 0.5, score_threshold=0.3)).tolist() == [1]
    assert asnumpy(nms(xp.asarray(boxes), xp.asarray(scores), 0.5, score_threshold=-1e300)).tolist() == [1, 0]


def test_any_strides(xp, asnumpy, shared_cache):
    boxes, scores = scene(np.random.default_rng(6), 200)
    wide = np.zeros((400, 9), np.float32)
    wide[::2, 1::2] = boxes
    found = nms(xp.asarray(wide)[::2, 1::2], xp.asarray(np.repeat(scores, 3))[::3], 0.3)
    assert asnumpy(found).tolist() == greedy(boxes, scores, 0.3).tolist()


def test_no_boxes_give_no_indices(xp, asnumpy, shared_cache):
    found = nms(xp.ones((0, 4), xp.float32), xp.ones(0, xp.float32), 0.5)
    assert found.shape == (0,)
    assert found.dtype == xp.int64
    indices, count = nms(xp.ones((0, 4), xp.float32), xp.ones(0, xp.float32), 0.5, max_output=3, padded=True)
    assert asnumpy(indices).tolist() == [-1, -1, -1]
    assert int(count) == 0


@pytest.mark.parametrize(
    ("boxes", "scores", "threshold", "options", "error", "match"),
    [
        ((5, 3), (5,), 0.5, {}, ValueError, r"nms: boxes has shape \(5, 3\); it takes \[N, 4\]"),
        ((5, 4), (4,), 0.5, {}, ValueError, r"scores has shape \(4,\)"),
        ((5, 4), (5,), 1.5, {}, ValueError, "iou_threshold is 1.5"),
        ((5, 4), (5,), float("nan"), {}, ValueError, "iou_threshold is nan"),
        ((5, 4), (5,), 0.5, {"max_output": -1}, ValueError, "max_output is -1"),
    ],
)
def test_bad_input_is_refused_by_name(xp, boxes, scores, threshold, options, error, match):
    with pytest.raises(error, match=match):
        nms(xp.ones(boxes, xp.float32), xp.ones(scores, xp.float32), threshold, **options)


def test_types_that_do_not_fit_are_refused(xp):
    boxes, scores = xp.ones((5, 4), xp.float32), xp.ones(5, xp.float32)
    with pytest.raises(TypeError, match="boxes has dtype int32"):
        nms(xp.ones((5, 4), xp.int32), scores, 0.5)
    with pytest.raises(TypeError, match="both must have one dtype"):
        nms(boxes, xp.ones(5, xp.float16), 0.5)
    with pytest.raises(TypeError, match="idxs has dtype float32"):
        batched_nms(boxes, scores, scores, 0.5)
