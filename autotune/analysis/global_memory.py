"""How many 32-byte sectors of global memory one access of a warp touches."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import UsageError

LANES = 32
SECTOR_BYTES = 32
WIDTHS_BYTES = (4, 8, 16)


def sectors(byte_offsets: Sequence[int | None], width_bytes: int) -> int:
    """Distinct sectors of one request; what the L2 cache is asked for is 32 times that.

    Args:
        byte_offsets: Where each lane accesses, in bytes from an address that is a multiple of 32;
            None for an inactive lane; at most 32 lanes.
        width_bytes: Bytes per lane: 4, 8 or 16.

    Raises:
        UsageError: more than 32 lanes, another width, or an offset that is not a multiple of the
            width.
    """
    if width_bytes not in WIDTHS_BYTES:
        raise UsageError(f"an access of {width_bytes} bytes per lane; possible are 4, 8 and 16")
    if len(byte_offsets) > LANES:
        raise UsageError(f"{len(byte_offsets)} byte offsets were given; a warp has {LANES} lanes")
    touched = set()
    for lane, offset in enumerate(byte_offsets):
        if offset is None:
            continue
        if offset % width_bytes:
            raise UsageError(
                f"lane {lane} accesses byte offset {offset}, which is not a multiple of its "
                f"{width_bytes} bytes"
            )
        # An aligned access of up to 16 bytes never straddles a sector.
        touched.add(offset // SECTOR_BYTES)
    return len(touched)
