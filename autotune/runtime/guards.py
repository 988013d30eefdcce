"""Whether PyTorch's tensors lie as others did, by one call instead of six attributes of each.

The guards are those with which PyTorch decides whether a function that it compiled may run again.
They are not public, so that they are tried before they are trusted, and done without where they
are missing or let through what they should not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Check = Callable[..., bool]
"""Whether tensors, of the same number and in the same order, lie as those it was made from."""


def maker(torch: Any) -> Callable[..., Check] | None:
    """What makes a check from tensors, which compares type, dtype, device, sizes, strides, whether
    a gradient is required, and views that negate or conjugate; None where PyTorch has none that
    can be relied on."""
    try:
        guards = torch._C._dynamo.guards.TensorGuards
    except AttributeError:
        return None

    def make(*tensors: Any) -> Check:
        check: Check = guards(
            *tensors,
            dynamic_dims_sizes=[list(each.shape) for each in tensors],
            dynamic_dims_strides=[list(each.stride()) for each in tensors],
        ).check
        return check

    try:
        return make if _is_sound(torch, make) else None
    except Exception:  # whatever another release makes of these arguments
        return None


def _is_sound(torch: Any, make: Callable[..., Check]) -> bool:
    """Whether tensors that lie alike pass, and nothing else does."""

    def plain(*shape: int, **options: Any) -> Any:
        return torch.empty(shape, **options)

    first = plain(4, 4)
    check = make(first, plain(4, 2))
    others = (
        plain(4, 8),
        plain(4),
        plain(4, 8)[:, ::2],
        plain(4, 8)[:, :4],
        plain(4, 4).t(),
        plain(4, 4, dtype=torch.float64),
        plain(4, 4, dtype=torch.int32),
        plain(4, 4, device="meta"),
        plain(4, 4, requires_grad=True),
        torch.nn.Parameter(plain(4, 4), requires_grad=False),
        None,
    )
    negated = plain(4, 4, dtype=torch.complex64).conj().imag
    with torch.no_grad():
        with_gradient = check(plain(4, 4, requires_grad=True), plain(4, 2))
    return (
        check(plain(4, 4), plain(4, 2))
        and not any(check(other, plain(4, 2)) for other in others)
        and not check(plain(4, 2), plain(4, 2))
        and not with_gradient
        and not make(plain(4, 8)[:, ::2], first)(negated, first)
    )
