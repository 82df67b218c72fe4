"""A function of a C unit, replaced by one of a test that cannot bring its cases about otherwise.

Units call each other through pointers that each unit takes once, when it is imported, from the
`__pyx_capi__` of the other one. So this is done in a process of its own, before any other unit that
calls the function is imported.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

_API: Final = ctypes.pythonapi
_NAME, _POINTER, _NEW = _API.PyCapsule_GetName, _API.PyCapsule_GetPointer, _API.PyCapsule_New
_NAME.restype, _NAME.argtypes = ctypes.c_void_p, [ctypes.py_object]
_POINTER.restype, _POINTER.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_void_p]
_NEW.restype = ctypes.py_object
_NEW.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]

_kept: list[Any] = []  # for as long as the process lives


def replace(
    unit: ModuleType, name: str, prototype: Any, made: Callable[[Any], Callable[..., Any]]
) -> None:
    """`prototype`: of ctypes.CFUNCTYPE. `made` gets the function that was there."""
    api: dict[str, Any] = unit.__pyx_capi__  # type: ignore[attr-defined]
    capsule = api[name]
    signature = _NAME(capsule)
    before = prototype(_POINTER(capsule, signature))
    function = prototype(made(before))
    _kept.extend((capsule, before, function))
    api[name] = _NEW(ctypes.cast(function, ctypes.c_void_p), signature, None)
