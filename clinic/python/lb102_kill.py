"""LB102: killed with bytes unacknowledged. The kernel goes on sending for it. A peer that stays silent gets all of
it; one that sends a byte meanwhile gets a reset instead of the tail. Mended: half-close and read to the
peer's end before the program may be ended."""

import os
import signal

import patient

sick = patient.is_sick()
stream = patient.reach()
patient.say(written=patient.fill(stream, 1 << 20))
if sick:
    os.kill(os.getpid(), signal.SIGKILL)
patient.say(read=patient.finish(stream))
