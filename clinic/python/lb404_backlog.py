"""LB404: listen(1), and a program that is busy when its clients come. The queue overflows, SYNs are dropped, and the
clients wait a second or more. Mended: listen(128), and a program that accepts."""

import patient

CLIENTS = 8

sick = patient.is_sick()
listener = patient.listen_at(patient.sys.argv[3], 1 if sick else 128)
patient.wait_readable(listener)
if sick:
    patient.time.sleep(0.4)
got = 0
listener.settimeout(2.5)
try:
    for _ in range(CLIENTS):
        stream = listener.accept()[0]
        stream.settimeout(None)
        got += patient.finish(stream)
except TimeoutError:
    pass  # a client may have been given up by the kernel
patient.say(written=0, read=got)
