"""`tutti run`, as a person uses it: real processes, real signals, nothing left behind."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from run_tools import PATIENCE_S, TUTTI, Marked, python, shell, tutti

# Starting -----------------------------------------------------------------------------------------


def test_every_rank_gets_its_place_as_from_torchrun() -> None:
    names = [
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "GROUP_RANK",
        "NODE_RANK",
    ]
    done = shell("echo " + " ".join(f"${name}" for name in names), "-n", "3")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [
        f"[{rank}] {rank} {rank} 3 3 127.0.0.1 0 0" for rank in range(3)
    ]


def test_all_ranks_agree_on_a_master_port_that_is_free() -> None:
    done = shell("echo $MASTER_PORT", "-n", "4", "--no-prefix")
    ports = set(done.stdout.split())
    assert len(ports) == 1
    assert 1024 < int(ports.pop()) < 65536


RENDEZVOUS = """
import os, socket, struct
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(master)
    peers = [server.accept()[0] for _ in range(size - 1)]
    total = rank + sum(struct.unpack("i", peer.recv(4))[0] for peer in peers)
    for peer in peers:
        peer.sendall(struct.pack("i", total))
else:
    while True:
        try:
            peer = socket.create_connection(master)
            break
        except ConnectionRefusedError:
            pass
    peer.sendall(struct.pack("i", rank))
    total = struct.unpack("i", peer.recv(4))[0]
print("sum of ranks", total)
"""


def test_a_script_written_for_torchrun_finds_its_peers() -> None:
    done = python(RENDEZVOUS, "-n", "5")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] sum of ranks 10" for rank in range(5)]


def test_libraries_see_that_a_launcher_started_them() -> None:
    script = (
        "echo ${TORCHELASTIC_RUN_ID:?} $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_USE_AGENT_STORE"
    )
    done = shell(script)
    assert re.fullmatch(r"\[0\] [0-9a-f]{16} 0\n", done.stdout)


def test_threads_are_shared_out_unless_the_caller_says_otherwise() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    cores = len(os.sched_getaffinity(0))
    many = shell("echo $OMP_NUM_THREADS", "-n", "2", "--no-prefix", env=environment)
    assert set(many.stdout.split()) == {str(max(1, cores // 2))}
    alone = shell("echo ${OMP_NUM_THREADS-unset}", "--no-prefix", env=environment)
    assert alone.stdout == "unset\n"
    given = shell("echo $OMP_NUM_THREADS", "-n", "2", "--no-prefix", "--env", "OMP_NUM_THREADS=7")
    assert set(given.stdout.split()) == {"7"}


def test_env_and_cwd_reach_every_rank(tmp_path: Path) -> None:
    done = shell(
        'echo "$A-$B" $(pwd)', "-n2", "--env", "A=one two", "--env=B=x=y", "--cwd", str(tmp_path)
    )
    assert sorted(done.stdout.splitlines()) == [f"[{r}] one two-x=y {tmp_path}" for r in range(2)]


def test_where_the_master_is_may_be_given() -> None:
    given = ("--env", "MASTER_ADDR=10.1.2.3", "--env", "MASTER_PORT=29500")
    assert shell("echo $MASTER_ADDR:$MASTER_PORT", *given).stdout == "[0] 10.1.2.3:29500\n"


def test_the_master_port_is_free_on_every_address() -> None:
    # Two ports to choose from, and one is taken on another address than the master's.
    script = f"""
import socket, subprocess
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as file:
    file.write("40000 40001")
taken = socket.create_server(("127.0.0.2", 40001))
for _ in range(8):
    subprocess.run(["{TUTTI}", "run", "--no-prefix", "--", "printenv", "MASTER_PORT"], check=True)
"""
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    if "unshare:" in done.stderr or "No such file" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout.split() == ["40000"] * 8, done.stderr


def test_the_environment_of_another_launcher_is_left_behind() -> None:
    outer = {"TORCHELASTIC_RUN_ID": "outer", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    script = "echo $TORCHELASTIC_RUN_ID ${TORCHELASTIC_USE_AGENT_STORE-none} ${TORCHELASTIC_MINE-}"
    done = shell(script, "--env", "TORCHELASTIC_MINE=kept", env=os.environ | outer)
    assert re.fullmatch(r"\[0\] [0-9a-f]{16} none kept\n", done.stdout)


def test_ranks_get_the_limits_that_tutti_was_started_with() -> None:
    done = shell(
        "ulimit -n",
        *("-n", "32", "--no-prefix"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096)),
    )
    assert set(done.stdout.split()) == {"64"}


def test_the_command_may_follow_without_dashes_and_keeps_its_own_options() -> None:
    assert tutti("-n", "1", "echo", "-n", "--json").stdout == "[0] --json\n"


def test_ranks_read_nothing_from_our_input() -> None:
    assert shell("cat; echo end", input="not for ranks\n").stdout == "[0] end\n"


def test_ranks_have_only_their_own_descriptors() -> None:
    """Beside the usual three, the arenas of control pages and of the heap."""
    script = """
import os
for number in sorted(os.listdir('/proc/self/fd'), key=int)[:-1]:
    target = os.readlink(f'/proc/self/fd/{number}')
    print(number, target if target.startswith('/memfd:') else '')
"""
    done = python(script, "-n", "3")
    expected = ["0 ", "1 ", "2 ", "3 /memfd:control (deleted)", "4 /memfd:heap (deleted)"]
    assert sorted(done.stdout.splitlines()) == [
        f"[{rank}] {line}" for rank in range(3) for line in expected
    ]


# Output -------------------------------------------------------------------------------------------


def test_lines_stay_whole_and_in_order_when_many_ranks_print_at_once() -> None:
    script = """
import os, sys
rank = os.environ["RANK"]
out = os.fdopen(1, "w", buffering=997)  # writes that end anywhere within a line
for i in range(10_000):
    out.write(f"{rank}:{i}:{'x' * (i % 80)}\\n")
out.flush()
"""
    done = python(script, "-n", "8")
    assert done.returncode == 0
    following = Counter[str]()
    for line in done.stdout.splitlines():
        prefix, rank, number, tail = re.fullmatch(r"\[(\d)\] (\d):(\d+):(x*)", line).groups()
        assert prefix == rank
        assert int(number) == following[rank]
        assert len(tail) == int(number) % 80
        following[rank] += 1
    assert following == {str(rank): 10_000 for rank in range(8)}


def test_output_and_errors_go_their_own_ways() -> None:
    done = shell("echo out; echo err >&2", "-n", "2")
    assert sorted(done.stdout.splitlines()) == ["[0] out", "[1] out"]
    assert sorted(done.stderr.splitlines()) == ["[0] err", "[1] err"]


def test_output_and_errors_into_one_pipe_tear_no_line_and_the_verdict_is_last() -> None:
    script = """
import os, sys, threading
def print_many(number, letter):
    for _ in range(100):
        os.write(number, (letter * 2000 + "\\n").encode() * 20)
threads = [threading.Thread(target=print_many, args=pair) for pair in ((1, "o"), (2, "e"))]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(3)
"""
    command = [TUTTI, "run", "--", sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        time.sleep(0.5)  # a pipe that is full when the other stream is written to
        lines = process.stdout.read().decode().splitlines()
    verdict = [line.startswith("tutti:") for line in lines].index(True)
    assert {line[:5] for line in lines[verdict + 1 :]} <= {"  its", "    |", "  ela"}
    assert Counter(lines[:verdict]) == {f"[0] {letter * 2000}": 2000 for letter in "oe"}


def test_a_last_line_without_an_end_is_ended() -> None:
    assert shell("printf one; printf two >&2").stdout == "[0] one\n"


def test_without_prefix_the_bytes_are_the_ranks_own() -> None:
    done = subprocess.run(
        [TUTTI, "run", "--no-prefix", "--", "printf", r"a\r\nb\0\377\n\rc"],
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout == b"a\r\nb\0\xff\n\rc"


def test_a_progress_bar_shows_each_of_its_states() -> None:
    done = shell(r"printf '\r10%%\r20%%\r30%%\ndone\n'")
    assert done.stdout == "[0] 10%\n[0] 20%\n[0] 30%\n[0] done\n"


def test_a_gigabyte_without_a_newline_takes_little_memory() -> None:
    size = 1 << 30
    script = f"head -c {size} /dev/zero | tr '\\0' x"
    command = [TUTTI, "run", "--", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        count = marks = 0
        while chunk := process.stdout.read(1 << 20):
            count += chunk.count(b"x")
            marks += chunk.count("…".encode())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert count == size
    assert marks > 1000  # its pieces say that they are continued
    # In KiB. What this process had when it forked counts too.
    assert usage.ru_maxrss < 256 << 10


def test_a_rank_that_closes_its_output_goes_on() -> None:
    done = shell("exec >&-; echo still here >&2; sleep 0.1; exit 7")
    assert done.returncode == 7
    assert "[0] still here" in done.stderr


def test_the_reader_going_away_ends_the_gang(gang: Marked) -> None:
    process = gang.start("-n", "2", "--", "yes")
    assert process.stdout.readline() in ("[0] y\n", "[1] y\n")
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(PATIENCE_S) == 128 + signal.SIGPIPE
    assert "ranks 0-1" in errors
    gang.all_gone()


def test_a_reader_that_is_slow_gets_everything(gang: Marked) -> None:
    process = gang.start("-n", "2", "--", "seq", "200000")
    time.sleep(0.5)
    lines = process.stdout.read().splitlines()
    assert process.wait(PATIENCE_S) == 0
    assert len(lines) == 400_000


def test_a_reader_that_never_reads_does_not_outlast_the_timeout(gang: Marked) -> None:
    process = gang.start("-n", "2", "--timeout", "500ms", "--", "yes")
    assert process.wait(PATIENCE_S) == 124
    assert "not all of it: whoever reads ours was too slow" in process.stderr.read()
    gang.all_gone()


def test_a_full_disk_is_told_and_does_not_end_the_gang() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [TUTTI, "run", "-n", "2", "--", "sh", "-c", "echo lost; sleep 0.1; echo err >&2"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 1
    assert "[0] err" in done.stderr
    assert re.search(r"of output were lost: .*No space left on device", done.stderr)


def test_what_is_lost_of_standard_error_is_told_on_output() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [TUTTI, "run", "--", "sh", "-c", "echo lost >&2"],
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 1
    assert re.search(r"of standard error were lost: .*No space left on device", done.stdout)


def test_a_file_gets_the_output_after_what_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "log"
    command = f"(echo before; {TUTTI} run -- echo within; echo after) > {file}"
    subprocess.run(["sh", "-c", command], check=True, timeout=PATIENCE_S)
    assert file.read_text() == "before\n[0] within\nafter\n"


def test_closed_standard_streams_harm_nobody() -> None:
    command = f"{TUTTI} run -n 2 -- sh -c 'echo x; exit 3' <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], timeout=PATIENCE_S).returncode == 3


def test_colour_is_for_terminals_only() -> None:
    assert "\033" not in shell("echo x; exit 1", "-n", "2").stdout
    script = f"{TUTTI} run -n 2 -- echo x"
    command = ["script", "-qec", script, "/dev/null"]
    environment = os.environ | {"TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    on_terminal = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert "\033[0;36m[0] \033[0mx" in on_terminal.stdout
    plain = environment | {"NO_COLOR": "1"}
    refused = subprocess.run(command, env=plain, capture_output=True, text=True, timeout=PATIENCE_S)
    assert "\033" not in refused.stdout


# Failing ------------------------------------------------------------------------------------------


def test_the_first_to_fail_is_named_and_the_others_are_ended(gang: Marked) -> None:
    script = """
if [ $RANK = 2 ]; then echo working; echo 'ValueError: bad luck' >&2; exit 3; fi
sleep 1000
"""
    process = gang.start("-n", "4", "--", "sh", "-c", script)
    errors = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 3
    verdict = errors[errors.index("tutti:") :]
    assert re.fullmatch(
        r"tutti: rank 2 failed first: exit code 3, after .*\n"
        r"  its last lines \(stderr\):\n"
        r"    \| ValueError: bad luck\n"
        r"  ended because of it: ranks 0-1,3 \(SIGTERM\)\n"
        r"  elapsed: .*; exit code 3\n",
        verdict,
    )


def test_the_order_of_failures_is_the_kernels(tmp_path: Path) -> None:
    # Rank 3 fails; all others fail once the kernel shows it as dead, before anyone ended them.
    script = """
import os, sys
from pathlib import Path
place = Path(sys.argv[1])
if os.environ["RANK"] == "3":
    (place / "new").write_text(str(os.getpid()))
    (place / "new").rename(place / "pid")
    os._exit(9)
while not (place / "pid").exists():
    pass
stat = Path("/proc") / (place / "pid").read_text() / "stat"
try:
    while stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
        pass
except OSError:
    pass  # gone altogether
os._exit(1)
"""
    for round_ in range(5):
        place = tmp_path / str(round_)
        place.mkdir()
        done = tutti("-n", "6", "--", sys.executable, "-c", script, place)
        assert "rank 3 failed first: exit code 9" in done.stderr
        assert done.returncode == 9


def test_many_ranks_are_folded_in_the_verdict() -> None:
    done = shell("[ $RANK = 3 ] && exit 1; sleep 1000", "-n", "32")
    assert "ranks 0-2,4-31 (SIGTERM)" in done.stderr


def test_a_signal_is_told_in_words() -> None:
    done = shell("kill -SEGV $$", "-n", "1")
    assert done.returncode == 128 + signal.SIGSEGV
    assert "rank 0 failed first: killed by SIGSEGV (segmentation fault" in done.stderr


def test_who_ignores_sigterm_is_killed_after_the_grace() -> None:
    script = "[ $RANK = 0 ] && sleep 0.3 && exit 1; trap '' TERM; while :; do sleep 0.1; done"
    done = shell(script, "-n", "3", "--grace", "200ms")
    assert done.returncode == 1
    assert re.search(r"ended because of it: ranks 1-2 \(SIGKILL, still there 200 ms", done.stderr)


def test_a_stopped_rank_is_ended_too() -> None:
    done = shell("[ $RANK = 0 ] && sleep 0.2 && exit 1; kill -STOP $$", "-n", "2")
    assert done.returncode == 1
    assert "rank 1 (SIGTERM)" in done.stderr


def test_ranks_that_finished_before_are_not_blamed() -> None:
    done = shell(
        "[ $RANK = 0 ] && exit 0; sleep 0.2; [ $RANK = 1 ] && exit 5; sleep 100", "-n", "3"
    )
    assert "rank 1 failed first: exit code 5" in done.stderr
    assert "had finished: rank 0" in done.stderr


def test_a_timeout_tells_who_still_ran() -> None:
    done = shell("[ $RANK = 0 ] || sleep 1000", "-n", "3", "--timeout", "300ms")
    assert done.returncode == 124
    assert "the time of 300 ms is up; ranks 1-2 still ran" in done.stderr


# What cannot be started ---------------------------------------------------------------------------


def test_a_command_that_does_not_exist_is_one_clear_error() -> None:
    done = tutti("-n", "8", "--", "no-such-command-anywhere")
    assert done.returncode == 127
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "no-such-command-anywhere" in done.stderr


def test_a_command_that_is_not_executable_is_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text("#!/bin/sh\n")
    done = tutti("-n", "8", "--", file)
    assert done.returncode == 126
    assert done.stderr.count("\n") == 1
    assert "chmod +x" in done.stderr


def test_a_folder_that_does_not_exist_is_one_clear_error(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    done = tutti("--cwd", missing, "--", "true")
    assert done.returncode in (126, 127)
    assert done.stderr.count("\n") == 1
    assert str(missing) in done.stderr


def test_too_few_descriptors_are_told_with_what_to_do() -> None:
    limit = 20
    done = tutti(
        "-n",
        "64",
        "--",
        "true",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
    )
    assert done.returncode == 1
    assert "the limit is 20" in done.stderr
    assert "ulimit -n" in done.stderr


@pytest.mark.parametrize("inherited", [25, 41])  # some are left, or too few to count the rest
def test_descriptors_that_are_open_already_are_counted(inherited: int) -> None:
    limit = 45

    def crowd() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        os.closerange(3, limit)
        for number in range(3, inherited):
            os.dup2(1, number)

    done = tutti("-n", "3", "--", "true", preexec_fn=crowd, close_fds=False)
    assert done.returncode == 1
    assert re.search(rf"\d+ are open and the limit is {limit}", done.stderr)


def test_a_low_limit_that_may_be_raised_is_raised() -> None:
    done = tutti(
        "-n",
        "64",
        "--",
        "true",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096)),
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words, advice",
    [
        (["-n", "0", "--", "true"], "-n 4"),
        (["-n", "many", "--", "true"], "-n 4"),
        (["-n"], "-n needs a number"),
        (["--timeout", "soon", "--", "true"], "--timeout 10m"),
        (["--timeout", "0", "--", "true"], "without --timeout"),
        (["--grace", "-1s", "--", "true"], "--grace 5s"),
        (["--grace", "4000d", "--", "true"], "too long"),
        (["--grace", "300000d", "--", "true"], "longer than 292 years"),
        (["--env", "NOVALUE", "--", "true"], "KEY=VALUE"),
        (["--env", "RANK=3", "--", "true"], "its own RANK from tutti"),
        (["--env", "MASTER_PORT=x", "--", "true"], "1 to 65535"),
        (["-np", "4", "true"], "is given as: -n 4"),
        (["--nproc_per_node=4", "true"], "-n 4"),
        (["--nproc-per-node", "4", "true"], "-n 4"),
        (["--jsno", "--", "true"], "did you mean --json?"),
        (["--json=yes", "--", "true"], "--json takes no value"),
        (["-n", "2"], "tutti run -n 4 --"),
        ([], "tutti run -n 4 --"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_refused_with_what_to_write(words: list[str], advice: str) -> None:
    done = tutti(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert advice in done.stderr


# For tools ----------------------------------------------------------------------------------------


def test_json_tells_everything_that_happened() -> None:
    script = "echo out; echo err >&2; [ $RANK = 1 ] && exit 6; sleep 1000"
    done = shell(script, "-n", "2", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 6
    assert {(e["rank"], e["pid"] > 0) for e in events if e["event"] == "start"} == {
        (0, True),
        (1, True),
    }
    assert {(e["rank"], e["stream"], e["text"]) for e in events if e["event"] == "output"} == {
        (rank, stream, text)
        for rank in range(2)
        for stream, text in (("stdout", "out"), ("stderr", "err"))
    }
    for rank in range(2):
        assert [e["event"] for e in events if e.get("rank") == rank][-1] == "exit"
    exits = {e["rank"]: e for e in events if e["event"] == "exit"}
    assert (exits[1]["code"], exits[1]["signal"], exits[1]["order"]) == (6, 0, 1)
    assert (exits[0]["signal"], exits[0]["signal_sent"]) == (signal.SIGTERM, signal.SIGTERM)
    verdict = events[-1]
    assert verdict["event"] == "verdict"
    assert (verdict["end"], verdict["culprit"], verdict["exit_code"]) == ("rank_failed", 1, 6)
    assert verdict["last_lines"] == ["err"]


def test_json_tells_an_exit_after_the_last_output(tmp_path: Path) -> None:
    script = """
until_there() { until [ -e $1 ]; do sleep 0.01; done; }
if [ $RANK = 0 ]; then
  (until_there gone; echo late; touch said) &
  echo $$ > pid.new; mv pid.new pid; exit
fi
until_there pid
while kill -0 $(cat pid) 2> /dev/null; do sleep 0.01; done
touch gone; until_there said
"""
    done = shell(script, "-n", "2", "--json", cwd=tmp_path)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [e["event"] for e in events if e.get("rank") == 0] == ["start", "output", "exit"]


def test_json_tells_an_exit_also_when_output_never_ends(gang: Marked, tmp_path: Path) -> None:
    script = "until [ -e held ]; do sleep 0.01; done"
    process = gang.start("--json", "--", "sh", "-c", script, cwd=tmp_path)
    started = json.loads(process.stdout.readline())
    with Path(f"/proc/{started['pid']}/fd/1").open("w"):
        (tmp_path / "held").touch()
        rest = process.communicate(timeout=PATIENCE_S)[0]
    assert [json.loads(line)["event"] for line in rest.splitlines()] == ["exit", "verdict"]


def test_json_survives_bytes_that_are_no_text() -> None:
    done = tutti("--json", "--", "printf", r"\377\0\n")
    outputs = [
        event["text"]
        for event in map(json.loads, done.stdout.splitlines())
        if event["event"] == "output"
    ]
    assert outputs == ["\ufffd\0"]


def test_help_has_examples() -> None:
    done = tutti("--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout
    assert "standard input is /dev/null" in done.stdout
    helped = subprocess.run([TUTTI, "help", "run"], capture_output=True, text=True, timeout=60)
    assert helped.stdout == done.stdout
