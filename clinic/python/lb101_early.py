"""LB101: a client that uploads, is answered before its body is through ("too large"), and gives up without reading
the answer. The unread answer makes the close a reset, and what was still under way of the body is thrown away.
Mended: read the answer, half-close, read to the end, then close."""

import patient

sick = patient.is_sick()
stream = patient.reach()
written = patient.fill(stream, 1 << 20)
patient.say(written=written)
patient.wait_readable(stream)
left = patient.unacked(stream)
got = 0
if sick:
    stream.close()
else:
    got = patient.finish(stream)
patient.say(read=got, unacked=left)
