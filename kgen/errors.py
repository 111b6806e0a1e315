"""What can go wrong, each with a message that says what came, what is taken, and what to do next.

Every error of kgen is a `KgenError`; those about bad input are also the built-in kind that NumPy would raise, so that
`except ValueError` works as people expect.
"""

from __future__ import annotations


class KgenError(Exception):
    """Base of all errors; `hint` is the next thing to try, printed on a line of its own."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  hint: {self.hint}" if self.hint else message


class SpecError(KgenError, ValueError):
    """A specialization that does not exist: an unknown kernel, a malformed name, a value that no axis takes."""


class TemplateError(KgenError):
    """A template that cannot be found or rendered; names the template and the line."""


class CompileError(KgenError, RuntimeError):
    """The compiler refused a generated kernel; shows the lines, the template, and how to reproduce it."""

    def __init__(self, message: str, *, log: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.log = log


class ArchError(KgenError, ValueError):
    """An architecture that is malformed, unknown to the compiler, too old for a kernel, or not the device's."""


class UnknownInstructionError(KgenError, NotImplementedError):
    """An instruction that the CPU executor does not have; `line` is where it comes from in the CUDA source, or 0."""

    def __init__(self, message: str, *, line: int = 0, hint: str | None = None) -> None:
        super().__init__(f"{message}, line {line} of the CUDA source" if line else message, hint=hint)
        self.line = line


class ExecutionError(KgenError, RuntimeError):
    """A kernel failed in the CPU executor: it trapped, waits for ever, or did what a check forbids; names the lines."""


class ToolchainError(KgenError, RuntimeError):
    """A tool that kgen needs (NVRTC, CuPy, a disassembler) is missing or too old."""


class DeviceError(KgenError, RuntimeError):
    """No GPU, or a driver that cannot run what was compiled."""


class CaptureError(KgenError, RuntimeError):
    """A kernel would have to be compiled or loaded while a CUDA graph is being captured."""


class JitDisabledError(KgenError, RuntimeError):
    """Compiling is forbidden (KGEN_JIT=off) and the cubin is in no cache."""


class CacheWarning(UserWarning):
    """The cache on disk was damaged and healed, or cannot be written; results are not affected."""
