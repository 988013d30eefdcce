"""Runs a rendered kernel on the CPU and watches every access to memory and every barrier.

What runs is the source that ships: only the primitives, through which every access goes, are
exchanged for host twins (templates/host/), and CUDA's words are defined away (runtime/host.h). A
small program of ours (runtime/*.cpp) runs blocks thread by thread and reports faults and counts.
"""

from autotune.emulate.emulator import emulate
from autotune.emulate.report import AccessCount, Fault, FaultKind, Report, TileClass

__all__ = ["AccessCount", "Fault", "FaultKind", "Report", "TileClass", "emulate"]
