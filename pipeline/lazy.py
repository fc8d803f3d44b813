"""Attributes that are worked out once, when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """As `functools.cached_property`, without its lock, which Python 3.11 has: one for all instances of a class, held while
    a value is worked out. Threads would wait for each other's values, and a process that is forked meanwhile for ever.

    Two threads that ask at once work it out twice, so it has to follow from the instance alone.

    Args:
        function: works the value out.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self._name = function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> cached_property[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._function(instance)  # from now on it is found before this
        return value
