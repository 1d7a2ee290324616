"""LB403: goes through a list of addresses from its beginning, whatever happened the last time. The first two are
dead: one never answers, one refuses. Mended: begins with the one that answered last.

The addresses are given in place of the host, with commas between them."""

import socket

import patient

sick = patient.is_sick()
addresses, port = patient.sys.argv[2].split(","), int(patient.sys.argv[3])
begin = patient.now()
failed = 0
for address in addresses if sick else reversed(addresses):
    try:
        stream = socket.create_connection((address, port), timeout=1.5)
        break
    except OSError:
        failed += 1
connect_ms = (patient.now() - begin) * 1e3
stream.settimeout(None)
stream.sendall(bytes(1000))
patient.say(written=1000, read=patient.finish(stream), connect_ms=connect_ms, failed=failed)
