"""LB101: a web server that answers before it has read the body, and closes. The unread body makes the close a
reset, and the part of the answer that was still under way is thrown away. Mended: half-close, read the rest
of the body, then close."""

import patient

sick = patient.is_sick()
stream = patient.reach()
head = patient.take(stream, 100)
written = patient.fill(stream, 1 << 20)
patient.say(written=written)
# The last part of the body comes while the answer is under way.
more = patient.take(stream, 1)
left = patient.unacked(stream)
if sick:
    stream.close()
else:
    more += patient.finish(stream)
patient.say(read=head + more, unacked=left)
