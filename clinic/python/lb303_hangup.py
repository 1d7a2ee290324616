"""LB303: both sides have half-closed, and the descriptor stays in the set of poll(). No mask keeps POLLHUP away:
poll() returns at once, every time. Mended: unregisters and closes at the hang-up."""

import select
import socket

import patient

sick = patient.is_sick()
stream = patient.reach()
stream.sendall(bytes(100))
stream.shutdown(socket.SHUT_WR)
patient.say(written=100)
poll = select.poll()
poll.register(stream, 0)
calls = 0
end = patient.now() + 1.2
while (left := end - patient.now()) > 0:
    events = poll.poll(left * 1e3)
    calls += 1
    if events and not sick:
        poll.unregister(stream)
patient.say(read=patient.finish(stream), calls=calls)
