"""The CPU executor: runs the PTX that NVRTC makes of a kernel, on a machine with no GPU.

translate/  parse.py -> simplify.py -> flow.py -> kernel.py (loop.py, lane.py, warp.py .., tables of forms/): PTX to C++
run/        with compiler.py, library.py and runtime/: C++ to a library, a fiber for each warp
check/      with runtime/checks.h: what no kernel may do, and in which line it does
"""

from __future__ import annotations

from kgen.cpu.forms import forms
from kgen.cpu.run.launch import Kernel, bind, compile_cuda, compile_ptx, compile_spec

__all__ = ["Kernel", "bind", "compile_cuda", "compile_ptx", "compile_spec", "forms"]
