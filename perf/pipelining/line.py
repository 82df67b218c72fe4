"""The process of the delay line: `python -m perf.pipelining.line TUN_A TUN_B DELAY_NS`.

The two are descriptors that it was given; standard input, a socket, changes the delay and ends it.
"""

from __future__ import annotations

import sys

from perf.pipelining._line import carry


def main() -> None:
    tun_a, tun_b, delay_ns = map(int, sys.argv[1:])
    carry(tun_a, tun_b, sys.stdin.fileno(), delay_ns)


if __name__ == "__main__":
    main()
