"""The CPU executor: runs the PTX that NVRTC makes of a kernel, on a machine with no GPU.

translate   parse.py -> flow.py -> translate.py (with lane.py, memory.py, warp.py and the tables of forms/): PTX to C++
run         compiler.py, library.py, run.py and runtime/: C++ to a library, a fiber for each warp
check       check.py, report.py and runtime/check.cpp: what no kernel may do, and in which line it does
"""

from __future__ import annotations

from kgen.cpu.forms import forms
from kgen.cpu.run import Kernel, bind, compile_cuda, compile_ptx, compile_spec

__all__ = ["Kernel", "bind", "compile_cuda", "compile_ptx", "compile_spec", "forms"]
