"""Decorators that compile kernels, and the cache of compiled kernels that all processes share.

`@kernel` compiles with numba, releases the GIL while the kernel runs, and keeps the machine code in
`$RAY_CANAL_CACHE_DIR` (cache_folder.py) under kernels/<key>, where the key is a hash of all kernel
sources, the numba version and the CPU. File paths and modification times are no part of it, so a
copy of the sources (Ray's working_dir, a fresh clone) finds what another copy has compiled.

With NUMBA_DISABLE_JIT=1 the decorator returns the function as it is: the same source is its own
plain-Python reference.
"""

from __future__ import annotations

import hashlib
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import llvmlite.binding as llvm
import numba
import numpy as np

# Loaded here, for no kernel can be called yet: numba asks numpy for `ma` with each array that it
# sees for the first time, and numpy then loads it. A thread that asks in the instant in which
# another has loaded it, but has not yet set it, asks itself until RecursionError.
import numpy.ma
import numpy.typing as npt
from numba.core import caching, config, types
from numba.core.runtime.nrt import rtsys

from ray_canal.cache_folder import CACHE_VARIABLE, cache_folder

F = TypeVar("F", bound=Callable[..., Any])
Element = TypeVar("Element", bound=np.generic)

logger = logging.getLogger(__name__)


JIT_DISABLED = bool(config.DISABLE_JIT)
CHECKED = JIT_DISABLED or bool(config.BOUNDSCHECK)
"""True if memory is accessed through checked array indexing only, not through pointers."""


@cache
def cache_key() -> str:
    """Return a hash of everything that the compiled code depends on."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.parent.rglob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    features = ",".join(sorted(k for k, on in llvm.get_host_cpu_features().items() if on))
    build = (numba.__version__, llvm.get_host_cpu_name(), features, str(CHECKED))
    digest.update("|".join(build).encode())
    return digest.hexdigest()[:32]


@cache
def cache_directory() -> Path:
    """Return the directory of this version's machine code."""
    return cache_folder(f"kernels/{cache_key()}")


class _Locator(caching._CacheLocator):  # type: ignore[misc]
    """Locator that points numba to `cache_directory()`, whatever file the kernel came from."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._line = function.__code__.co_firstlineno
        self._py_file = function.__code__.co_filename  # numba names it where it cannot keep code

    def get_cache_path(self) -> str:
        return str(cache_directory())

    def get_source_stamp(self) -> str:
        return cache_key()

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func)  # also for a directory that can only be read


class _Symbol(NamedTuple):
    """A name that a kernel's machine code defines, with the attributes that numba's engine
    reads."""

    name: str
    is_declaration: bool = False


class _Symbols(NamedTuple):
    functions: list[_Symbol]
    global_variables: list[_Symbol]


class _CacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    """numba's own reader and writer, but a kernel's LLVM code, which the compiler links into
    callers, is only parsed when that asks for it: parsed, it takes 20 MB of a process."""

    _locator_classes = (_Locator,)

    def reduce(self, compiled: Any) -> Any:
        module = compiled.library._get_module_for_linking()
        symbols = _Symbols(
            *(
                [_Symbol(each.name) for each in kind if not each.is_declaration]
                for kind in (module.functions, module.global_variables)
            )
        )
        return super().reduce(compiled), symbols

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        ((name, kind, (machine_code, llvm_code)), *rest), symbols = payload
        codegen = target_context.codegen()
        codegen._engine._load_defined_symbols(symbols)
        nothing = llvm.parse_assembly("").as_bitcode()
        library = name, kind, (machine_code, nothing)
        compiled = super().rebuild(target_context, (library, *rest))
        compiled.library._shared_module = None
        compiled.library._get_module_for_linking = _Linked(compiled.library, llvm_code)
        return compiled


class _Linked:
    """A library's LLVM code, parsed when it is called."""

    def __init__(self, library: Any, llvm_code: bytes) -> None:
        self._library = weakref.ref(library)
        self._llvm_code = llvm_code

    def __call__(self) -> Any:
        library: Any = self._library()
        if library._shared_module is None:
            library._shared_module = llvm.parse_bitcode(self._llvm_code)
        return library._shared_module


class _KernelCache(caching.FunctionCache):  # type: ignore[misc]
    _impl_class = _CacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load machine code without numba's preparations for compiling: a process whose kernels are
        all in the cache saves 0.2 s of CPU. The compiler makes them itself."""
        rtsys.initialize(target_context)  # what machine code that allocates is linked to
        try:
            return self._load_overload(sig, target_context)
        except OSError as error:
            _tell(error.strerror or str(error))
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep machine code for other processes; this one has it, whether the disk takes it or
        not."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _tell(error.strerror or str(error))


@cache
def _tell(reason: str) -> None:
    """Once for each reason: a process has hundreds of kernels."""
    logger.warning(
        "kernels cannot be kept in %s: %s; each process compiles them again, which takes up to two "
        "minutes. Name a folder that can be written by %s",
        cache_directory(), reason, CACHE_VARIABLE,
    )  # fmt: skip


def kernel(function: F) -> F:
    """Compile `function` on first use (from the cache where it can)."""
    return function if JIT_DISABLED else _compiled(function)


def without_refcounts(function: F) -> F:
    """Compile a kernel without reference counting, as it allocates nothing and returns no array.

    Counting is a call per array and step: more than such a step itself, in the inner loops.
    """
    return function if JIT_DISABLED else _compiled(function, _nrt=CHECKED)


def inlined(function: F) -> F:
    """Compile a kernel without reference counting that becomes part of its callers; not where
    indices are checked, as each check would be compiled again for each caller.

    A call passes every array as seven words; for small steps of inner loops.
    """
    if JIT_DISABLED:
        return function
    return _compiled(function, _nrt=CHECKED, forceinline=not CHECKED)


def read_only(array: npt.NDArray[Element]) -> npt.NDArray[Element]:
    """Return a view that cannot be written. Shared memory cannot, and kernels are compiled for each
    kind of array: so they are for read-only ones alone."""
    view = array.view()
    view.flags.writeable = False
    return view


def _compiled(function: F, **options: bool) -> F:
    # No C code calls a kernel, so none needs an entry for that.
    dispatcher = numba.njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    dispatcher._cache = _KernelCache(function)
    _take_constants_as_values(dispatcher)
    return dispatcher  # type: ignore[no-any-return]


def _take_constants_as_values(dispatcher: Any) -> None:
    """Let a kernel that calls this one with a constant call what is compiled for any value: numba
    would compile it once more for each constant."""
    template = dispatcher.get_call_template

    def of_values(arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        values = [types.unliteral(each) for each in arguments]
        return template(values, {name: types.unliteral(each) for name, each in named.items()})

    dispatcher.get_call_template = of_values
