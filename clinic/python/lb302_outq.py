"""LB302: asks SIOCOUTQ again and again until it is 0, to know that all has arrived. Mended: half-close, and sleep
until the peer's end."""

import patient

sick = patient.is_sick()
stream = patient.reach()
patient.say(written=patient.fill(stream, 1 << 20))
calls = 0
while sick and patient.unacked(stream) > 0:
    calls += 1
patient.say(read=patient.finish(stream), calls=calls)
