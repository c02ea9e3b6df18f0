"""A real Slurm on this machine's loopback, tuned for many small tasks, with nothing outside one
temporary folder: its own munge key and socket, its own state, its own ports.

    with running(cpus=32) as slurm:            # or Missing, and why
        subprocess.run(["srun", ...], env=slurm.environment)
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from common import Missing, debian_peer

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PATIENCE_S = 20

# No accounting, no cgroups, no logs; the scheduler looks at once whenever a job comes or ends.
CONFIGURATION = """
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldDebug=error
SlurmdDebug=error
SlurmctldParameters=enable_configless
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType={scheduler}
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,default_queue_depth=10000
PriorityType=priority/basic
MaxArraySize=10001
MaxJobCount=100000
CompleteWait=0
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


@dataclass(frozen=True)
class Slurm:
    environment: dict[str, str]
    folder: Path

    def output_of(self, *words: str) -> str:
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def wait_until_idle(self, patience_s: float, pause_s: float) -> None:
        """No job, and all processors given back. A controller that is too busy to say is not."""

        def idle() -> bool:
            try:
                busy = self.output_of("squeue", "-h", "-o", "%i").strip()
                return not busy and self.output_of("sinfo", "-h", "-o", "%T").strip() == "idle"
            except (RuntimeError, subprocess.TimeoutExpired):
                return False

        _wait_for(idle, f"slurm is not idle: {_last_words(self.folder)}", patience_s, pause_s)


@contextmanager
def running(cpus: int, scheduler: str = "sched/builtin") -> Iterator[Slurm | Missing]:
    """Started with the block and gone after it, whatever ends the block."""
    missing = why_not()
    if missing:
        yield missing
        return
    folder = Path(tempfile.mkdtemp(prefix="slurm"))
    with ExitStack() as at_the_end:
        at_the_end.callback(shutil.rmtree, folder, ignore_errors=True)
        at_the_end.callback(_end_steps, folder)
        slurm = Slurm(os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}, folder)
        try:
            _configure(folder, cpus, scheduler)
            _start(slurm, at_the_end)
            slurm.wait_until_idle(PATIENCE_S, pause_s=0.05)
        except RuntimeError as error:
            yield Missing(f"slurm does not start here: {error}")
            return
        yield slurm


def why_not() -> Missing | None:
    if os.geteuid() != 0:
        return Missing("slurmd needs root")
    return debian_peer(*PACKAGES)


def _configure(folder: Path, cpus: int, scheduler: str) -> None:
    folder.chmod(0o755)  # munge refuses a socket that others cannot reach
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    for name in ("state", "spool"):
        (folder / name).mkdir()
    ports = _free_ports(2)
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            host=socket.gethostname().split(".")[0],
            folder=folder,
            cpus=cpus,
            scheduler=scheduler,
            controller_port=ports[0],
            node_port=ports[1],
        )
    )


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _start(slurm: Slurm, at_the_end: ExitStack) -> None:
    folder = slurm.folder
    munge = ["/usr/sbin/munged", "--foreground", "--force", f"--socket={folder}/munge.socket"]
    munge += [f"--key-file={folder}/munge.key", f"--pid-file={folder}/munged.pid"]
    munge += [f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"]
    _start_one(slurm, munge, at_the_end)
    _wait_for(lambda: (folder / "munge.socket").exists(), "munged makes no socket")
    configuration = ["-f", str(folder / "slurm.conf")]
    _start_one(slurm, ["/usr/sbin/slurmctld", "-D", "-c", *configuration], at_the_end)
    host = socket.gethostname().split(".")[0]
    _start_one(slurm, ["/usr/sbin/slurmd", "-D", "-N", host, *configuration], at_the_end)


def _start_one(slurm: Slurm, command: list[str], at_the_end: ExitStack) -> None:
    """In a session of its own: Ctrl-C ends it through us, after what uses it."""
    process = subprocess.Popen(
        command,
        env=slurm.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    at_the_end.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end_steps(folder: Path) -> None:
    """What slurmd started stays when it is ended: whoever has our configuration is ours."""
    mark = f"SLURM_CONF={folder}/".encode()
    for status in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in status.read_bytes():
                os.kill(int(status.parent.name), signal.SIGKILL)
        except OSError:
            continue


def _last_words(folder: Path) -> str:
    logs = [folder / name for name in ("munged.log", "slurmctld.log", "slurmd.log")]
    lines = [line for log in logs if log.exists() for line in log.read_text().splitlines()]
    return lines[-1] if lines else "nothing in its logs"


def _wait_for(
    done: Callable[[], bool], why: str, patience_s: float = PATIENCE_S, pause_s: float = 0.05
) -> None:
    until = time.monotonic() + patience_s
    while not done():
        if time.monotonic() > until:
            raise RuntimeError(why)
        time.sleep(pause_s)
