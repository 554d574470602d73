"""The verdicts of `herdsman doctor`, as pure functions: measured values in, a finding with cause and fix out."""

import re
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from herdsman.cli.machine import LEAST, LITTLE, MB, Place, space_fault
from herdsman.cli.output import did_you_mean
from herdsman.errors import ProviderRejected
from herdsman.fleet.model import GpuDevice

if TYPE_CHECKING:
    from herdsman.providers.runpod.answers import GpuType, Volume

SMALL_SKEW, LARGE_SKEW = timedelta(seconds=2), timedelta(seconds=30)
RENEWED_BEFORE = timedelta(days=14)
OK_STATUS = 200
_IMAGE = re.compile(
    r"[a-z0-9]+([._-][a-z0-9]+)*(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?"
    r"(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_KEY = re.compile(r"[A-Za-z0-9_-]{20,128}", re.ASCII)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class State(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    about: str
    status: State
    said: str
    fix: str = ""
    """What to do about it; empty where nothing is wrong."""


def ok(about: str, said: str) -> Finding:
    return Finding(about=about, status=State.OK, said=said)


def warn(about: str, said: str, fix: str) -> Finding:
    return Finding(about=about, status=State.WARN, said=said, fix=fix)


def fail(about: str, said: str, fix: str) -> Finding:
    return Finding(about=about, status=State.FAIL, said=said, fix=fix)


def room(place: Place, fault: str | None, free: int) -> Finding:
    about, said = "room", f"{place.directory} ({place.setting}): {free // MB:,} MB free"
    if fault is not None:
        return fail(about, fault.partition("; ")[0], fault.partition("; ")[2])
    if free < LEAST:
        return fail(about, said, (space_fault(place, free) or "").rpartition(": ")[2])
    if free < LITTLE:
        return warn(about, said, f"free some, or set {place.setting} to a directory with more space")
    return ok(about, f"{said}, writable")


def secret_file(path: Path, mode: int | None) -> Finding:
    """`mode` is None where there is no such file."""
    if mode is None:
        return ok("secrets", f"{path} does not exist yet; herdsman up creates it")
    if mode & _OTHERS:
        return fail("secrets", f"{path} holds a secret, but other users can read it", f"chmod 600 {path}")
    return ok("secrets", f"{path} is readable by you alone")


def schema(fault: str | None, latest: str) -> Finding:
    if fault is None:
        return ok("schema", f"{latest}, guards in place")
    said, _, fix = fault.rpartition(": ")
    return fail("schema", said, fix)


def adopted(doubt: str, moved: str, hint: str) -> Finding:
    """`doubt` says why the database may be a copy, or out of date; `hint` is what a worker reported."""
    if doubt:
        said, fix = doubt.rsplit("; ", 1)
        return fail("database", f"{said} ({moved})" if moved else said, fix)
    if hint:
        fix = "confirm that it is the one in use: herdsman db adopt"
        return warn("database", f"it may have been restored from a backup: {hint}", fix)
    return ok("database", "it is where it was last used")


def clock(skew: timedelta | None, whose: str) -> Finding:
    """`skew` is how far the clock of the database is ahead of ours; None where it has no clock of its own."""
    if skew is None:
        return ok("clock", f"{whose} uses the clock of this machine")
    seconds, off = skew.total_seconds(), abs(skew)
    said = f"the clock of {whose} is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} ours"
    fix = "synchronise both clocks with NTP (timedatectl set-ntp true)"
    if off >= LARGE_SKEW:
        return fail("clock", f"{said}: tokens and leases expire at the wrong time", fix)
    return warn("clock", said, fix) if off >= SMALL_SKEW else ok("clock", said)


def runpod_key(key: str) -> Finding:
    """Checks only its format; the key itself is never shown."""
    about = "provider"
    if key != key.strip() or any(mark in key for mark in "\"' "):
        return fail(about, "RUNPOD_API_KEY contains quotes or spaces", "set it again, without them")
    if not _KEY.fullmatch(key):
        fix = "copy it again from the settings of your Runpod account"
        return warn(about, f"RUNPOD_API_KEY has {len(key)} characters and does not look like a key", fix)
    return ok(about, "RUNPOD_API_KEY looks like a key")


def image(name: str | None, template: str | None) -> Finding:
    """Its name only: whether the registry has it shows when a pod pulls it."""
    if name is None:
        return ok("provider", f"pods are made from template {template}")
    if not _IMAGE.fullmatch(name):
        fix = "write it as REGISTRY/NAME:TAG or NAME@sha256:DIGEST, in lower case and without https://"
        return fail("provider", f"RUNPOD_WORKER_IMAGE is {name!r}, which is not a valid image name", fix)
    if "@" not in name and ":" not in name.rpartition("/")[2]:
        fix = "add a tag or a digest, so that all pods run the same image"
        return warn("provider", f"RUNPOD_WORKER_IMAGE {name} has no tag: each pod pulls the latest", fix)
    return ok("provider", f"pods run {name}")


def gpu_types(wanted: Sequence[str], offered: "Sequence[GpuType]", cloud: str) -> Iterator[Finding]:
    known = {each.id: each for each in offered}
    for name in wanted:
        found = known.get(name)
        if found is None:
            fix = f"write it as Runpod does{did_you_mean(name, known) or ': ' + ', '.join(sorted(known))}"
            yield fail("provider", f"Runpod has no GPU type {name!r} (RUNPOD_GPU_TYPES)", fix)
            continue
        price = found.price_in(cloud)
        at = "" if price is None else f" at {price:.2f} USD an hour"
        said = f"{name} in the {cloud.lower()} cloud{at}"
        if found.in_stock:
            yield ok("provider", f"{said}, in stock now")
        else:
            yield warn("provider", f"{said}, out of stock now", "list more types in RUNPOD_GPU_TYPES")


def volumes(wanted: Sequence[str], there: "Sequence[Volume]") -> Iterator[Finding]:
    from herdsman.providers.runpod.placement import chosen  # noqa: PLC0415  (the library is an extra)

    for name in wanted:
        try:
            (found,) = chosen((name,), there)
        except ProviderRejected as error:
            yield fail("provider", str(error), "check RUNPOD_STORAGE_NAME and RUNPOD_STORAGE_VOLUMES")
        else:
            place = found.data_center or "an unknown data center"
            yield ok("provider", f"network volume {name} is in {place}: its pods are rented only there")


def address(url: str, answer: int, addresses: Collection[str], *, here: bool) -> Finding:
    """`addresses` are those of its host as resolved here; `here` says that pods run on this machine."""
    if answer != OK_STATUS:
        return fail("provider", f"{url}/health/live answers {answer}", "check API_URL: it must point to this API")
    private = [each for each in addresses if not ip_address(each.partition("%")[0]).is_global]
    if private and not here:
        fix = "set API_URL to a public address, unless pods reach this network; doctor --spend tests it from a pod"
        return warn("provider", f"{url} is at {private[0]}, which is not a public address", fix)
    return ok("provider", f"{url} answers from here; doctor --spend tests it from a pod")


def from_a_pod(url: str, ref: str, said: str | None, *, gone: bool) -> Finding:
    """`said` is None where the pod reported nothing in time."""
    if not gone:
        return fail("provider", f"the pod {ref} was terminated but is still there", "terminate it in Runpod's console")
    if said is None:
        fix = "check that RUNPOD_WORKER_IMAGE can be pulled, and has curl or python3"
        return fail("provider", f"the pod {ref} reported nothing in 15 minutes; it is terminated", fix)
    if said != "reached":
        return fail("provider", f"a pod could not reach {url}: {said}", "check API_URL, the proxy and the firewall")
    return ok("provider", f"a pod was rented, reached {url}, and is terminated")


def gpus(*, local: bool, fake: int, devices: Sequence[GpuDevice], driver: str | None) -> Finding:
    if not local:
        return ok("gpu", "not needed here: workers run on rented machines")
    if fake:
        return ok("gpu", f"simulating {fake} (FAKE_GPUS)")
    if devices:
        names = ", ".join(f"{each.name} ({each.total_mb // 1024} GB)" for each in devices)
        return ok("gpu", f"{names}; driver {driver or 'of unknown version'}")
    said = "no GPU found" if driver is None else f"the driver {driver} shows no GPU"
    fix = "install NVIDIA's driver, see nvidia-smi; or simulate GPUs on purpose: herdsman up --fake-gpus 2"
    return warn("gpu", f"{said}: herdsman up will simulate some", fix)


def certificate(file: str, names: Sequence[str], left: timedelta) -> Finding:
    said = f"{file} is valid for {left.days} days, for {', '.join(names) or 'no name'}"
    if not names:
        return fail("certificate", said, "create one with a subjectAltName: clients check no other name")
    return warn("certificate", said, "renew it") if left < RENEWED_BEFORE else ok("certificate", said)


def port(host: str, number: int, *, ours: int | None, taken: str | None) -> Finding:
    """`ours` is the process of ours that listens there; `taken` the system's error when another one does."""
    if number == 0:
        return ok("port", "any free one (API_PORT=0)")
    if ours is not None:
        return ok("port", f"{host}:{number} is in use by herdsman itself, process {ours}")
    if taken is not None:
        fix = f"set another API_PORT, or herdsman up --port 0; ss -ltnp 'sport = :{number}' shows what uses it"
        return fail("port", f"{host}:{number} cannot be used: {taken}", fix)
    return ok("port", f"{host}:{number} is free")
