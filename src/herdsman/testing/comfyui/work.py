"""What each class of node does when its turn comes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from herdsman.testing.comfyui.files import Files, Outside, Place, input_place
from herdsman.testing.comfyui.pictures import digest, looks_like_a_picture, png

STEP_S = 0.01
PREVIEW_SIDE = 8
MEGABYTE = 1024 * 1024


class NodeFailed(Exception):
    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class FailedBetweenNodes(NodeFailed):
    """Found while the next node is picked; ComfyUI then calls the job a success."""


class Interrupted(Exception):
    """Somebody asked for the end of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A node at work: what it is given, and what it may do."""

    inputs: Mapping[str, Any]
    signature: str
    """The same for the same inputs, all the way up."""
    pictures: Mapping[str, tuple[str, ...]]
    """By input: a digest for each picture that comes through the link."""
    files: Files
    temp_prefix: str
    sleep: Callable[[float], None]
    sleep_unless_interrupted: Callable[[float], None]
    hang: Callable[[], None]
    progress: Callable[[int, int, bytes | None], None]
    inner: Callable[[int], None]
    """Tells of a node that this one has brought along."""

    def number(self, name: str, otherwise: float = 0.0) -> float:
        value = self.inputs.get(name, otherwise)
        return otherwise if isinstance(value, list) else float(value)

    def text(self, name: str) -> str:
        return str(self.inputs.get(name, ""))


@dataclass(frozen=True, slots=True)
class Made:
    """What a node leaves: pictures for the next ones, and files or texts for people."""

    pictures: tuple[str, ...]
    ui: dict[str, Any] | None = None


def work(class_type: str, bench: Bench) -> Made:
    batch = max((len(each) for each in bench.pictures.values()), default=1)
    pictures = tuple(digest(bench.signature, number) for number in range(batch))
    doing = _WORK.get(class_type)
    return Made(pictures) if doing is None else doing(bench, pictures)


Pictures = tuple[str, ...]


def _batch(bench: Bench, _: Pictures) -> Made:
    return Made(
        tuple(digest(bench.signature, number) for number in range(int(bench.number("batch_size", 1))))
    )


def _sample(bench: Bench, pictures: Pictures) -> Made:
    steps = int(bench.number("steps", 1))
    for step in range(1, steps + 1):
        bench.sleep(bench.number("seconds", STEP_S))
        bench.progress(step, steps, png(digest(bench.signature, step), PREVIEW_SIDE))
    return Made(pictures)


def _load(bench: Bench, _: Pictures) -> Made:
    place = input_place(bench.text("image"))
    file = bench.files.find(place)
    if file is None:
        raise NodeFailed("FileNotFoundError", f"[Errno 2] No such file or directory: '{place.filename}'")
    if not looks_like_a_picture(file.content):
        raise NodeFailed("PIL.UnidentifiedImageError", f"cannot identify image file '{place.filename}'")
    return Made((digest(file.content.hex()),))


def _save(bench: Bench, _: Pictures) -> Made:
    return _saved(bench, bench.text("filename_prefix"), "output")


def _preview(bench: Bench, _: Pictures) -> Made:
    return _saved(bench, bench.temp_prefix, "temp")


def _saved(bench: Bench, prefix: str, folder: str) -> Made:
    shown: list[dict[str, str]] = []
    for picture in bench.pictures["images"]:
        try:
            place = bench.files.next_place(prefix, folder)
        except Outside as error:
            raise NodeFailed("Exception", "Saving image outside the output folder is not allowed.") from error
        bench.files.put(place, png(picture))
        shown.append(place.shown())
    return Made((), {"images": shown})


def _save_to_socket(bench: Bench, _: Pictures) -> Made:
    pictures = bench.pictures["images"]
    for number, picture in enumerate(pictures):
        bench.progress(number, len(pictures), png(picture))
    return Made(())


def _sleep(bench: Bench, pictures: Pictures) -> Made:
    bench.sleep(bench.number("seconds"))
    return Made(pictures)


def _sleep_lightly(bench: Bench, pictures: Pictures) -> Made:
    bench.sleep_unless_interrupted(bench.number("seconds"))
    return Made(pictures)


def _fail(bench: Bench, _: Pictures) -> Made:
    raise NodeFailed("RuntimeError", bench.text("message"))


def _run_out_of_memory(_: Bench, __: Pictures) -> Made:
    raise NodeFailed(
        "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 is full."
    )


def _hang(bench: Bench, pictures: Pictures) -> Made:
    bench.hang()
    return Made(pictures)


def _huge(bench: Bench, pictures: Pictures) -> Made:
    place = bench.files.next_place("huge", "output", "bin")
    bench.files.put_large(place, bench.signature, int(bench.number("megabytes")) * MEGABYTE)
    return Made(pictures, {"files": [place.shown()]})


def _show(bench: Bench, pictures: Pictures) -> Made:
    """A preview in one large frame; what follows the end of a PNG is ignored by whoever reads it."""
    padding = bytes(int(bench.number("megabytes")) * MEGABYTE)
    bench.progress(1, 1, png(bench.signature) + padding)
    return Made(pictures)


def _expand(bench: Bench, pictures: Pictures) -> Made:
    for number in range(2):
        bench.inner(number)
    return Made(pictures)


def _text(bench: Bench, pictures: Pictures) -> Made:
    return Made(pictures, {"text": [bench.text("text")]})


def _name(bench: Bench, pictures: Pictures) -> Made:
    """Whatever the name, the file can be had under it: a service that lies would do so too."""
    place = Place(bench.text("filename"))
    bench.files.put(place, png(bench.signature))
    return Made(pictures, {"images": [place.shown()]})


_WORK: Mapping[str, Callable[[Bench, Pictures], Made]] = MappingProxyType(
    {
        "EmptyLatentImage": _batch,
        "EmptyImage": _batch,
        "KSampler": _sample,
        "LoadImage": _load,
        "SaveImage": _save,
        "PreviewImage": _preview,
        "SaveImageWebsocket": _save_to_socket,
        "HerdsmanSleep": _sleep,
        "HerdsmanInterruptible": _sleep_lightly,
        "HerdsmanFail": _fail,
        "HerdsmanOutOfMemory": _run_out_of_memory,
        "HerdsmanHang": _hang,
        "HerdsmanHuge": _huge,
        "HerdsmanPreview": _show,
        "HerdsmanExpand": _expand,
        "HerdsmanText": _text,
        "HerdsmanName": _name,
    }
)
