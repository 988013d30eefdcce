"""Arrays on the GPU without another library: memory of a door, shown by the array interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotune import gpu

View = Callable[[np.ndarray], np.ndarray]


class DeviceArray:
    """A view of an array that lies on the device as its base lies on the host."""

    def __init__(
        self, context: gpu.Context, base: np.ndarray, view: View = lambda base: base
    ) -> None:
        self._context, self._base, self._view = context, base, view
        self._here = view(base)
        self.address = context.allocate(max(256, base.nbytes))
        context.upload(self.address, base)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # The address of a view is that of its first element.
        offset = self._here.ctypes.data - self._base.ctypes.data
        return {
            "shape": self._here.shape,
            "strides": self._here.strides,
            "typestr": self._here.dtype.str,
            "data": (self.address + offset, False),
            "version": 3,
        }

    @property
    def host(self) -> np.ndarray:
        """The view as the host has it: what was uploaded, or downloaded last."""
        return self._here

    def download(self) -> np.ndarray:
        """Waits for the device, and brings the base back; the view of it."""
        self._context.synchronize()
        self._context.download(self._base, self.address)
        return self._here

    def upload(self) -> None:
        """Brings the host's base to the device."""
        self._context.upload(self.address, self._base)

    def free(self) -> None:
        self._context.free(self.address)
