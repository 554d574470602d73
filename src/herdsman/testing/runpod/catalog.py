"""What the fake has to offer. The ids are Runpod's own, the prices near them."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

DATA_CENTERS = ("EU-RO-1", "US-KS-2", "CA-MTL-1")
TEMPLATES = frozenset({"a1b2c3d4e5"})


@dataclass(frozen=True, slots=True)
class Gpu:
    id: str
    memory_gb: int
    price: Decimal
    """US dollars an hour, in the secure cloud."""

    @property
    def short_name(self) -> str:
        return self.id.removeprefix("NVIDIA ").removeprefix("GeForce ")


@dataclass(frozen=True, slots=True)
class NetworkVolume:
    id: str
    name: str
    size_gb: int
    data_center: str


def _gpus(*rows: tuple[str, int, str]) -> Mapping[str, Gpu]:
    return MappingProxyType({name: Gpu(name, memory, Decimal(price)) for name, memory, price in rows})


GPUS = _gpus(
    ("NVIDIA RTX A4000", 16, "0.20"),
    ("NVIDIA RTX A5000", 24, "0.27"),
    ("NVIDIA RTX A6000", 48, "0.49"),
    ("NVIDIA A40", 48, "0.44"),
    ("NVIDIA L4", 24, "0.49"),
    ("NVIDIA L40S", 48, "0.91"),
    ("NVIDIA GeForce RTX 3090", 24, "0.46"),
    ("NVIDIA GeForce RTX 4090", 24, "0.74"),
    ("NVIDIA GeForce RTX 5090", 32, "0.94"),
    ("NVIDIA A100 80GB PCIe", 80, "1.64"),
    ("NVIDIA H100 80GB HBM3", 80, "3.29"),
    ("NVIDIA H200", 141, "3.99"),
    ("NVIDIA B200", 180, "6.79"),
)
VOLUMES = (
    NetworkVolume("vol1aaaa", "models", 200, "EU-RO-1"),
    NetworkVolume("vol2bbbb", "models-us", 200, "US-KS-2"),
)
