"""Strangers at the ports of a running cluster: none is answered, each is refused and told of."""

import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_tools import Cluster, Machine
from run_tools import PATIENCE_S, wait_until

KNOCKS = 60
MOST_LINES = 15  # ten at once, and one more in ten seconds

LISTENING = "0A"


def sockets_of(pid: int) -> set[str]:
    links = Path(f"/proc/{pid}/fd").iterdir()
    names = [str(link.readlink()) for link in links]
    return {name[8:-1] for name in names if name.startswith("socket:[")}


def ports_of(machine: Machine) -> list[int]:
    """Whatever the programs of a machine listen at, as the kernel knows it."""
    ours = sockets_of(machine.pid("head")) | sockets_of(machine.pid("agent"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    found = {
        int(row[1].split(":")[1], 16) for row in rows if row[3] == LISTENING and row[9] in ours
    }
    assert len(found) == 4  # of head and agent, for users and for the tree
    return sorted(found)


def answer_to(port: int, data: bytes) -> bytes:
    """All that comes before the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as stream:
        stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)
        return read_all(stream)


def read_all(stream: socket.socket) -> bytes:
    got = b""
    try:
        while part := stream.recv(4096):
            got += part
    except (ConnectionError, ssl.SSLError):
        pass
    return got


def tls(certificate: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def tls_answer_to(port: int, data: bytes, certificate: Path | None) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain:
        try:
            with tls(certificate).wrap_socket(plain) as stream:
                stream.sendall(data)
                return read_all(stream)
        except (ConnectionError, ssl.SSLError):
            return b""


def user_certificate(machine: Machine) -> Path:
    (found,) = (machine.home / "cluster").glob("user-*.pem")
    return found


def head_port(machine: Machine) -> int:
    said = json.loads((machine.home / "machine.json").read_text())
    return int(said["head_api"].rsplit(":", 1)[1])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        os.urandom(4096),
        b"\x16\x03\x01\xff\xff" * 99,
    ],
    ids=["nothing", "words", "http", "noise", "almost TLS"],
)
def test_no_port_answers_who_speaks_no_tls(machine: Machine, data: bytes) -> None:
    for port in ports_of(machine):
        answer = answer_to(port, data)
        # TLS may be told that it is broken TLS, by an alert; nothing else is ever said.
        assert answer == b"" or (answer[0] == 0x15 and len(answer) == 7), (port, answer)
    machine.well("status")


def test_no_port_answers_who_has_no_certificate(machine: Machine) -> None:
    for port in ports_of(machine):
        assert tls_answer_to(port, b"GET / HTTP/1.1\r\n\r\n", None) == b"", port
    machine.well("status")


def test_many_strangers_fill_no_log(machine: Machine) -> None:
    for port in ports_of(machine):
        for _ in range(KNOCKS):
            assert answer_to(port, b"GET / HTTP/1.1\r\n\r\n") == b""
    lines = [line for line in machine.logs().splitlines() if "refused a" in line]
    assert 4 <= len(lines) <= 4 * MOST_LINES, machine.logs()


@pytest.fixture
def other() -> Iterator[Machine]:
    cluster = Cluster(uuid.uuid4().hex)
    cluster.head.well("up", "--name", "one", "--slots", "1")
    yield cluster.head
    cluster.end()


def test_a_certificate_of_another_cluster_is_refused_and_told(
    machine: Machine, other: Machine
) -> None:
    for port in ports_of(machine):
        assert tls_answer_to(port, b"x" * 64, user_certificate(other)) == b""
    (theirs,) = {json.loads((other.home / "machine.json").read_text())["cluster"]}
    wait_until(lambda: machine.logs().count(theirs) >= 4, "all four have told of it")


def issue_expired(machine: Machine, folder: Path) -> Path:
    """A certificate of this cluster's own authority that ended years ago."""
    said = json.loads((machine.home / "machine.json").read_text())
    authority = machine.home / "cluster/authority"
    key, request, signed = folder / "key", folder / "request", folder / "signed"
    (folder / "index").touch()
    (folder / "serial").write_text("77\n")
    config = folder / "config"
    config.write_text(
        f"[ca]\ndefault_ca=one\n[one]\ndatabase={folder}/index\nserial={folder}/serial\n"
        f"new_certs_dir={folder}\ndefault_md=sha256\npolicy=any\nx509_extensions=v3\n"
        "[any]\ncommonName=optional\n[v3]\nbasicConstraints=critical,CA:FALSE\n"
        "keyUsage=critical,digitalSignature\nextendedKeyUsage=clientAuth,serverAuth\n"
        f"subjectAltName=URI:tutti://{said['cluster']}/user/{said['user']}\n"
    )
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    openssl("req", "-new", "-key", key, "-subj", "/CN=x", "-out", request)
    openssl(
        *("ca", "-batch", "-notext", "-config", config, "-in", request, "-out", signed),
        *("-cert", authority / "certificate.pem", "-keyfile", authority / "key.pem"),
        *("-startdate", "20200101000000Z", "-enddate", "20200201000000Z"),
    )
    whole = folder / "whole.pem"
    whole.write_text(key.read_text() + signed.read_text())
    return whole


def openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_expired_certificate_is_refused_and_told(machine: Machine, tmp_path: Path) -> None:
    expired = issue_expired(machine, tmp_path)
    for port in ports_of(machine):
        assert tls_answer_to(port, b"x" * 64, expired) == b""
    wait_until(lambda: machine.logs().count("2020-02-01") >= 4, "all four have told of it")


def test_a_message_over_the_limit_ends_its_connection_and_nothing_else(machine: Machine) -> None:
    port = head_port(machine)
    header = struct.pack("<IIIBBH", 0, 0x7FFFFFFF, 0, 1, 0, 0)
    assert tls_answer_to(port, header, user_certificate(machine)) == b""
    wait_until(lambda: "2147483647" in machine.logs(), "the head tells how long it was")
    machine.well("status")


def test_a_host_with_the_name_of_another_is_refused_and_told(cluster: Cluster) -> None:
    first = cluster.join("two", 1)
    thief = cluster.add()
    address, token = cluster.token()
    done = thief("join", address, "--token", token, "--name", "two", "--slots", "1")
    assert done.returncode != 0
    assert "there is a host two in this cluster already, and it lives" in done.stderr
    assert first.pid("agent")
    hosts = cluster.head.json("status")["hosts"]
    assert [host["alive"] for host in hosts if host["name"] == "two"] == [True]


@pytest.mark.parametrize(
    ("copied", "words"),
    [
        (("machine.json", "cluster"), "there is an agent two in this cluster already"),
        (("machine.json", "cluster", "agent"), "two hosts must not have one name"),
    ],
    ids=["without its number", "with its number"],
)
def test_a_second_agent_with_the_same_certificate_is_refused_and_told(
    cluster: Cluster, copied: tuple[str, ...], words: str
) -> None:
    first = cluster.join("two", 1)
    job = cluster.head.submit("true", "-n", "9")  # by the end of it both have their logs on disk
    cluster.head.wait_for(job, "succeeded")
    thief = cluster.add()
    for path in copied:
        ignore = shutil.ignore_patterns("*.sock", "pid", "keepers")
        if (first.home / path).is_dir():
            shutil.copytree(first.home / path, thief.home / path, ignore=ignore)
        else:
            shutil.copy(first.home / path, thief.home / path)
    agent = thief.start("agent")
    wait_until(lambda: words in cluster.head.logs(), "the head refuses it")
    assert "two agents have one name, and the newer is refused" in cluster.head.logs()
    (twin,) = cluster.head.json("status")["twins"]
    assert twin["name"] == "two"
    assert "two: another agent with its certificate was refused" in cluster.head.well("status")
    agent.terminate()
    agent.communicate()
    job = cluster.head.submit("true", "-n", "9")
    assert cluster.head.wait_for(job, "succeeded")["restarts"] == 0


def test_a_second_agent_below_another_parent_is_noticed_by_the_head_and_expelled(
    empty_cluster: Cluster,
) -> None:
    """A line of hosts: the third hangs below the second, its twin finds a place below the first."""
    cluster = empty_cluster
    cluster.head.well("up", "--name", "one", "--slots", "1", "--fan-out", "1")
    two, three = cluster.join("two", 1), cluster.join("three", 1)
    job = cluster.head.submit("true", "-n", "3")
    cluster.head.wait_for(job, "succeeded")
    thief = cluster.add()
    for path in ("machine.json", "cluster", "agent"):
        ignore = shutil.ignore_patterns("*.sock", "pid", "keepers")
        if (three.home / path).is_dir():
            shutil.copytree(three.home / path, thief.home / path, ignore=ignore)
        else:
            shutil.copy(three.home / path, thief.home / path)
    agent = thief.start("agent")
    wait_until(lambda: cluster.head.json("status")["twins"], "the head has noticed")
    assert [twin["name"] for twin in cluster.head.json("status")["twins"]] == ["three"]
    agent.terminate()
    agent.communicate()
    job = cluster.head.submit("true", "-n", "3")
    assert cluster.head.wait_for(job, "succeeded")["restarts"] == 0
    assert all(machine.pid("agent") for machine in (two, three))


def peer_certificate(port: int, certificate: Path) -> bytes:
    plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    with tls(certificate).wrap_socket(plain) as stream:
        found = stream.getpeercert(binary_form=True)
    assert found is not None
    return found


def test_a_host_that_joined_renews_its_certificates_while_it_runs(empty_cluster: Cluster) -> None:
    for machine in (empty_cluster.head, empty_cluster.add()):
        machine.environment["TUTTI_TEST_CERTIFICATES_LIVE_S"] = "20"
    head, two = empty_cluster.machines
    head.well("up", "--name", "one", "--slots", "1")
    address, token = empty_cluster.token()
    two.well("join", address, "--token", token, "--name", "two", "--slots", "1")
    files = [two.home / "cluster/agent-two.pem", user_certificate(two)]
    before = {file: file.read_text() for file in files}
    pid = two.pid("agent")
    for file in files:
        wait_until(lambda file=file: file.read_text() != before[file], f"{file.name} is renewed")
    (port,) = [
        int(host["address"].rsplit(":", 1)[1])
        for host in head.json("status")["hosts"]
        if host["name"] == "two"
    ]
    leaf = files[0].read_text().split("-----BEGIN CERTIFICATE-----")[1]
    served = ssl.DER_cert_to_PEM_cert(peer_certificate(port, files[0]))
    assert served.split("-----BEGIN CERTIFICATE-----")[1].split() == leaf.split()
    assert two.pid("agent") == pid
    assert "renewed a certificate" in head.logs()
    two.well("run", "-n", "2", "--", "true")


def test_certificates_are_renewed_while_head_and_agent_run(empty_cluster: Cluster) -> None:
    machine = empty_cluster.head
    machine.environment["TUTTI_TEST_CERTIFICATES_LIVE_S"] = "20"
    machine.well("up", "--name", "one", "--slots", "1")
    pids = machine.pid("head"), machine.pid("agent")
    before = {p: peer_certificate(p, user_certificate(machine)) for p in ports_of(machine)}
    for port, first in before.items():
        wait_until(
            lambda port=port, first=first: (
                peer_certificate(port, user_certificate(machine)) != first
            ),
            f"port {port} has a new one",
        )
    assert pids == (machine.pid("head"), machine.pid("agent"))
    machine.well("run", "--", "true")
