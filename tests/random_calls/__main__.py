"""python -m tests.random_calls --seconds 60 --seed N [--jobs N] [--operator GLOB] [--cpu]"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from fnmatch import filter as matching
from itertools import count

from tests.random_calls.jobs import Tally, in_processes, in_this_process
from tests.random_calls.run import Settings, operators

ENDLESS = 1e9


def main(words: Sequence[str] | None = None) -> int:
    """Make calls, print what failed and how many were made; 1 if any failed."""
    parser = _parser()
    asked = parser.parse_args(words)
    if not matching(operators(), asked.operator):
        parser.error(f"no operator is named {asked.operator!r}; there are: {', '.join(sorted(operators()))}")
    seed = int(time.time()) if asked.seed is None else asked.seed
    settings = Settings(seed, asked.operator, asked.cpu, asked.most)
    tally = Tally(settings, lambda line: print(line, flush=True))
    if asked.call is not None:
        in_this_process(settings, [asked.call], ENDLESS, tally)
    elif asked.jobs > 1:
        in_processes(settings, asked.jobs, asked.seconds, tally)
    else:
        in_this_process(settings, count(), asked.seconds, tally)
    print(tally.summary())
    return 1 if tally.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.random_calls", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to begin new calls")
    parser.add_argument("--seed", type=int, help="which calls are drawn; by default others each time")
    parser.add_argument("--call", type=int, metavar="N", help="make only the call of this number")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that make calls at once")
    parser.add_argument("--operator", default="*", metavar="GLOB", help="only operators of these names")
    parser.add_argument("--cpu", action="store_true", help="NumPy arrays on the CPU executor, and small ones")
    parser.add_argument("--most", type=int, metavar="N", help="the numbers of the largest array")
    return parser


if __name__ == "__main__":
    sys.exit(main())
