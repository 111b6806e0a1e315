"""How many blocks of a kernel fit on one multiprocessor, from what the compiler says it takes; no GPU is asked.

The arithmetic and the limits are those of NVIDIA's `cuda_occupancy.h` and of the table "Technical Specifications per
Compute Capability" in the CUDA programming guide, with shared memory given all of its share of the L1 cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.arch import Arch

_WARP = 32
_REGISTERS = 65536  # of a multiprocessor, on every architecture since Kepler
_REGISTER_UNIT = 256  # registers are handed to a warp in units of this many
_PARTITIONS = 4  # each with a quarter of the registers, and warps of its own


@dataclass(frozen=True)
class Limits:
    """What one multiprocessor holds: warps, blocks, bytes of shared memory."""

    warps: int
    blocks: int
    smem: int


_LIMITS = {
    (7, 5): Limits(32, 16, 64 << 10),
    (8, 0): Limits(64, 32, 164 << 10),
    (8, 6): Limits(48, 16, 100 << 10),
    (8, 7): Limits(48, 16, 164 << 10),
    (8, 8): Limits(48, 16, 100 << 10),
    (8, 9): Limits(48, 24, 100 << 10),
    (9, 0): Limits(64, 32, 228 << 10),
    (10, 0): Limits(64, 32, 228 << 10),
    (10, 3): Limits(64, 32, 228 << 10),
    (11, 0): Limits(48, 24, 228 << 10),
    (12, 0): Limits(48, 24, 100 << 10),
    (12, 1): Limits(48, 24, 100 << 10),
}


@dataclass(frozen=True)
class Occupancy:
    """Blocks that run on a multiprocessor at once, and the share of its warps that they fill, 0 to 1."""

    blocks: int
    warps: float


def occupancy(arch: Arch, threads: int, registers: int, smem: int) -> Occupancy | None:
    """The occupancy of a kernel; None for an architecture whose limits are not in the table.

    threads, smem  of a block; smem in bytes, static and dynamic together
    registers      of a thread
    """
    limits = _LIMITS.get((arch.major, arch.minor))
    if limits is None:
        return None
    warps = -(-threads // _WARP)
    since_ampere = arch.major >= 8
    # From Ampere on, the driver keeps 1 KB of every block's shared memory for itself.
    block_smem = _round_up(smem + (1024 if since_ampere else 0), 128 if since_ampere else 256)
    by_smem = limits.smem // block_smem if block_smem else limits.blocks
    warp_registers = _round_up(max(registers, 1) * _WARP, _REGISTER_UNIT)
    by_registers = _REGISTERS // _PARTITIONS // warp_registers * _PARTITIONS // warps
    # A launch is checked as if a block's warps filled all partitions evenly.
    if warp_registers * _round_up(warps, _PARTITIONS) > _REGISTERS:
        by_registers = 0
    blocks = min(limits.blocks, limits.warps // warps, by_registers, by_smem)
    return Occupancy(blocks, blocks * warps / limits.warps)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
