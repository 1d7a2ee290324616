"""LB207: a path that loses everything for moments. Nothing comes back that could tell of a loss, so the sender waits
for its retransmission time-out, twice as long each time. The program can do nothing about it; mended is the
path."""

import patient

patient.is_sick()
stream = patient.reach()
start = patient.now()
written = 0
for _ in range(40):
    stream.sendall(bytes(20000))
    written += 20000
    patient.time.sleep(0.05)
got = patient.finish(stream)
patient.say(written=written, read=got, seconds=patient.now() - start)
