"""Which class a handler's exception is of, and what is told about it."""

import traceback

from herdsman.worker.context import Cancelled, TryAgain, UserError

LONGEST_ERROR = 8000
CANCELLED = "cancelled"
_FULL_NAMES = ("OutOfMemory", "OutOfMemoryError", "OutOfMemoryException")
# PyTorch, CuPy, JAX and cuDNN have words of their own for a full GPU; they are all we can go by.
_FULL_WORDS = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "HIP out of memory",
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "RESOURCE_EXHAUSTED",
)


def told(error: BaseException) -> dict[str, object]:
    return {"failure": kind(error), "error": text(error)}


def kind(error: BaseException) -> str:
    match error:
        case UserError():
            return "user_error"
        case TryAgain():
            return "infrastructure"
        case Cancelled():
            return CANCELLED
        case _:
            return "out_of_memory" if out_of_memory(error) else "job_error"


def out_of_memory(error: BaseException) -> bool:
    """The cause counts too: libraries wrap what they catch."""
    seen: set[int] = set()
    here: BaseException | None = error
    while here is not None and id(here) not in seen:
        seen.add(id(here))
        if _is_full(here):
            return True
        here = here.__cause__ or here.__context__
    return False


def _is_full(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ in _FULL_NAMES:
        return True
    said = str(error)
    return any(word in said for word in _FULL_WORDS)


def text(error: BaseException) -> str:
    if isinstance(error, UserError | TryAgain | Cancelled):
        return str(error)[:LONGEST_ERROR]
    return "".join(traceback.format_exception(error))[-LONGEST_ERROR:]
