"""LB103: SO_LINGER with a time of zero. close() resets the connection and throws away what is not acknowledged.
Mended: the option is left alone; half-close, read to the peer's end, then close."""

import socket
import struct

import patient

sick = patient.is_sick()
stream = patient.reach()
patient.say(written=patient.fill(stream, 1 << 20))
got = patient.take(stream, 1)
left = patient.unacked(stream)
if sick:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()
else:
    got += patient.finish(stream)
patient.say(read=got, unacked=left)
