"""LB204: the application does not write: it sleeps between its pieces, and path, window and buffers are idle
meanwhile. Nothing about the network can help. Mended: writes when it has something to write."""

import patient

sick = patient.is_sick()
stream = patient.reach()
written = 0
for _ in range(100):
    stream.sendall(bytes(65536))
    written += 65536
    if sick:
        patient.time.sleep(0.05)
patient.say(written=written, read=patient.finish(stream))
