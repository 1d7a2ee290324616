"""LB107: closes a Unix stream socket with input unread. The peer reads what we had written and then sees
"connection reset"; what it had sent to us is gone. Mended: half-close, read to the peer's end, close."""

import patient

sick = patient.is_sick()
stream = patient.reach()
patient.say(written=patient.fill(stream, 50000))
patient.wait_readable(stream)
got = 0
if sick:
    stream.close()
else:
    got = patient.finish(stream)
patient.say(read=got)
