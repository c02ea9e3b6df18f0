"""The flight recorder from outside: Python writes and reads, `tutti record dump` prints."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tutti

TUTTI = Path(__file__).resolve().parent.parent / "build/release/tutti"


def dump(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TUTTI, "record", "dump", *words], capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker.rec"


def record_a_step(path: Path) -> None:
    step = tutti.RecordKind("pytest.step", "step", "loss")
    with tutti.Recorder(str(path), process="worker 3") as recorder:
        with recorder.span(step, 12) as span:
            recorder.event("pytest.send", 4096, -7, span=span.id)
            span.set(12, 99)
        recorder.counter("pytest.sent").add(42)
        recorder.gauge("pytest.queued").set(-3)


def test_what_python_recorded_is_what_it_reads(path: Path) -> None:
    record_a_step(path)
    recording = tutti.record.read(path)
    begin, event, end = recording.records
    assert (recording.process, recording.pid) == ("worker 3", os.getpid())
    assert recording.closed_ns > recording.created_ns
    assert (begin.type, begin.kind, begin.a, begin.a_label) == ("begin", "pytest.step", 12, "step")
    assert (event.type, event.kind, event.a, event.b) == ("event", "pytest.send", 4096, -7)
    assert event.span == begin.span == end.span
    assert (end.type, end.a, end.b) == ("end", 12, 99)
    assert end.duration_ns == end.time_ns - begin.time_ns > 0
    assert recording.counters == {"pytest.sent": 42}
    assert recording.gauges == {"pytest.queued": -3}
    assert recording.lost == 0


def test_a_ring_that_is_full_keeps_the_newest(path: Path) -> None:
    recorder = tutti.Recorder(str(path), lanes=1, records_per_lane=8)
    for i in range(20):
        recorder.event("pytest.tick", i)
    recording = tutti.record.read(path)
    assert [record.a for record in recording.records] == list(range(12, 20))
    assert recording.overwritten == recording.lost == 12


def test_a_killed_process_leaves_its_records(path: Path) -> None:
    program = (
        "import sys, tutti\n"
        "recorder = tutti.Recorder(sys.argv[1])\n"
        "for i in range(1000): recorder.event('pytest.tick', i)\n"
        "print('recorded', flush=True)\n"
        "while True: recorder.gauge('pytest.spins').add(1)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"recorded\n"
    child.kill()
    assert child.wait() == -signal.SIGKILL
    recording = tutti.record.read(path)
    assert [record.a for record in recording.records] == list(range(1000))
    assert recording.closed_ns == 0


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(tutti.Error, match=r"making the recording .*/nowhere/x\.rec") as caught:
        tutti.Recorder(str(tmp_path / "nowhere/x.rec"))
    assert caught.value.code == "not_found"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_is_told_when_the_recording_is_made(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(tutti.Error, match="free some space or choose another") as caught:
            tutti.Recorder(str(tmp_path / "x.rec"))
        assert caught.value.code == "exhausted"
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_people_get_a_table(path: Path) -> None:
    record_a_step(path)
    done = dump(path)
    assert done.returncode == 0, done.stderr
    heading, _, begin, event, end, counter, gauge, totals = done.stdout.splitlines()
    assert heading.startswith(f"worker 3 (pid {os.getpid()}) on ")
    assert "> pytest.step step=12 loss=0 [span " in begin
    assert "pytest.send a=4096 b=-7 [in " in event
    assert "< pytest.step step=12 loss=99 [span " in end and " took " in end
    assert counter == "counter pytest.sent = 42"
    assert gauge == "gauge   pytest.queued = -3"
    assert totals.startswith("3 events recorded, 0 lost")


def test_tools_get_json_lines(path: Path) -> None:
    record_a_step(path)
    lines = [json.loads(line) for line in dump(path, "--json").stdout.splitlines()]
    assert [line["type"] for line in lines] == ["recording", "begin", "event", "end", "totals"]
    assert lines[-1]["counters"] == {"pytest.sent": 42}
    only = dump(path, "--json", "--kind", "pytest.send").stdout.splitlines()
    assert [json.loads(line)["type"] for line in only] == ["recording", "event", "totals"]


def test_follow_shows_events_as_they_happen_and_ends_with_the_recorder(path: Path) -> None:
    recorder = tutti.Recorder(str(path))
    command = [TUTTI, "record", "dump", path, "--follow", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["type"] == "recording"
        for i in range(3):
            recorder.event("pytest.tick", i)
            assert json.loads(follower.stdout.readline())["a"] == i
        recorder.close()
        assert json.loads(follower.stdout.readline())["type"] == "totals"
        assert follower.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "this is no recording"),
        (b"x" * 10_000, "this is no recording"),
        (b"TUTTIREC" + bytes(100), "cut short within the header: 108 of 4096 bytes are there"),
        (b"TUTTIREC\x07" + bytes(5000), "a recording of version 7"),
        (b"TUTTIREC\x01" + bytes(5000), "the header, bytes 0 to 192, is damaged"),
    ],
)
def test_what_is_no_recording_is_refused_with_what_and_where(
    path: Path, content: bytes, words: str
) -> None:
    path.write_bytes(content)
    done = dump(path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"tutti record: {path}: ")
    assert words in done.stderr
    with pytest.raises(tutti.Error, match=words):
        tutti.record.read(path)


def test_a_file_that_is_not_there_is_told(path: Path) -> None:
    done = dump(path)
    assert done.returncode == 1
    assert str(path) in done.stderr
    with pytest.raises(FileNotFoundError):
        tutti.record.read(path)


def test_without_a_file_it_shows_how_to_call_it() -> None:
    alone = subprocess.run([TUTTI, "record"], capture_output=True, text=True)
    assert alone.returncode == 0
    assert "tutti record dump" in alone.stdout
    assert dump().returncode == 2
    assert dump("x", "--since", "soon").returncode == 2
