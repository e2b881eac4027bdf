"""Copy texts out of a chunk, and check that they are UTF-8."""

from __future__ import annotations

from ray_canal.kernels.base.jit import without_refcounts
from ray_canal.kernels.base.memory import copy
from ray_canal.kernels.base.utf8 import meaning_of


@without_refcounts
def first_broken(source, bounds):
    """Return the first of the texts `source[bounds[k, 0]:bounds[k, 1]]` that is not UTF-8; -1 if
    all are."""
    for k in range(bounds.shape[0]):
        if meaning_of(source, bounds[k, 0], bounds[k, 1]) < 0:
            return k
    return -1


@without_refcounts
def copy_texts(source, bounds, target, at):
    """Copy the texts, one behind the other, to `target` from offset `at` on."""
    for k in range(bounds.shape[0]):
        start, size = bounds[k, 0], bounds[k, 1] - bounds[k, 0]
        copy(target, at, source, start, size)
        at += size
