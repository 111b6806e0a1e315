"""The CPU executor: runs the PTX that NVRTC makes of a kernel, on a machine with no GPU.

translate/  parse.py -> simplify.py -> flow.py -> kernel.py -> listing.py (lane.py, warp.py .., tables of forms/): PTX
            to lists of numbers, and the C++ of the shapes of their statements (shape.py)
run/        with library.py, shapes.py, compiler.py and runtime/: a list to results, a fiber for each warp
check/      with runtime/checks.h: what no kernel may do, and in which line it does
"""

from __future__ import annotations

from kgen.cpu.forms import forms
from kgen.cpu.run.launch import Kernel, bind, compile_cuda, compile_ptx, compile_spec

__all__ = ["Kernel", "bind", "compile_cuda", "compile_ptx", "compile_spec", "forms"]
