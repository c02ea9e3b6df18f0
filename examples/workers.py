"""Workers that compute pi together, a little more in every step, as a training script would.

    tutti run -n 4 -- python examples/workers.py --steps 20
    tutti run -n 4 -- python examples/workers.py --lose 2        # one of them is killed

Every rank knows its place from the environment, as under torchrun. Each adds up its share of the
step's terms; rank 0 joins the sums, so that none is more than a step ahead of the others.
"""

import argparse
import os
import signal
import socket
import struct
import sys
import time

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])
TERMS_PER_STEP = 400_000
NUMBER = struct.Struct("<d")
MASTER = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def meet() -> list[socket.socket]:
    """Connections to everybody else for rank 0; one to rank 0 for the rest."""
    if RANK == 0:
        with socket.create_server(MASTER) as server:
            return [server.accept()[0] for _ in range(SIZE - 1)]
    while True:
        try:
            return [socket.create_connection(MASTER)]
        except ConnectionRefusedError:
            time.sleep(0.01)  # rank 0 is not there yet


def receive(peer: socket.socket) -> float:
    received = peer.recv(NUMBER.size, socket.MSG_WAITALL)
    if len(received) < NUMBER.size:
        raise ConnectionError("a peer is gone")
    return NUMBER.unpack(received)[0]


def sum_over_ranks(mine: float, peers: list[socket.socket]) -> float:
    """The same sum on every rank, when all have given their part; fails when one is gone."""
    if RANK != 0:
        peers[0].sendall(NUMBER.pack(mine))
        return receive(peers[0])
    total = mine + sum(map(receive, peers))
    for peer in peers:
        peer.sendall(NUMBER.pack(total))
    return total


def share_of_terms(step: int) -> float:
    """This rank's terms of 4/1 - 4/3 + 4/5 - 4/7 + … in the step."""
    first = step * TERMS_PER_STEP
    return sum(
        (4 - 8 * (k % 2)) / (2 * k + 1) for k in range(first + RANK, first + TERMS_PER_STEP, SIZE)
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--lose", type=int, help="the rank that is killed half-way")
    options = parser.parse_args()

    peers = meet()
    print(f"pid {os.getpid()}: {SIZE} ranks have met")
    pi = 0.0
    for step in range(options.steps):
        terms = share_of_terms(step)
        if options.lose == RANK and step == options.steps // 2:
            print(f"step {step + 1:>2}  about to be killed with SIGKILL")
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            pi += sum_over_ranks(terms, peers)
        except ConnectionError:
            print(f"step {step + 1:>2}  lost a peer")
            sys.exit(1)
        bar = "#" * (20 * (step + 1) // options.steps)
        print(f"step {step + 1:>2}  {bar:<20}  pi is about {pi:.9f}")


if __name__ == "__main__":
    main()
