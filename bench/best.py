"""Peers as fast as they can be on this processor.

Two libraries choose their kernels by what they know of processors, which is less than what there
is. OpenBLAS takes an old kernel for a processor that is newer than itself; OPENBLAS_CORETYPE has it
take another. MKL leaves the AVX-512 of AMD's processors unused, unless its question whether this is
Intel's is answered for it. Benches try each way, and the fastest is the peer.
"""

import os
import subprocess
from pathlib import Path

from common import PEERS

Environment = dict[str, str]

_AS_ON_INTEL = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"


def _processor() -> tuple[str, set[str]]:
    """Its vendor, and what it can do."""
    lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    facts = {name.strip(): value.strip() for name, _, value in lines}
    return facts.get("vendor_id", ""), set(facts.get("flags", "").split())


def ways_of_openblas() -> dict[str, Environment]:
    """What to call it, and what it is to find in its environment."""
    _, flags = _processor()
    types = [("SkylakeX", "avx512bw"), ("Zen", "avx2"), ("Haswell", "avx2")]
    forced = {f"OpenBLAS {name}": {"OPENBLAS_CORETYPE": name} for name, k in types if k in flags}
    return {"OpenBLAS": {}} | forced


def ways_of_torch(name: str) -> dict[str, Environment]:
    """The same of torch, which is called `name`."""
    vendor, flags = _processor()
    if vendor != "AuthenticAMD" or "avx512f" not in flags:
        return {name: {}}
    library = PEERS / "mkl_as_on_intel.so"
    if not library.exists():
        PEERS.mkdir(exist_ok=True)
        making = library.with_suffix(f".{os.getpid()}")
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", making]
        subprocess.run(command, check=True, input=_AS_ON_INTEL, text=True)
        making.rename(library)
    loaded = " ".join(filter(None, [str(library), os.environ.get("LD_PRELOAD")]))
    return {name: {}, f"{name}, MKL as on Intel": {"LD_PRELOAD": loaded}}
