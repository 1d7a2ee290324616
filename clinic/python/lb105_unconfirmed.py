"""LB105: the peer resets while bytes of ours are unacknowledged, because everything was written before the peer
had said that it wants it. Mended: writes what was agreed on, and waits for the peer's word before more."""

import patient

sick = patient.is_sick()
stream = patient.reach()
patient.say(written=patient.fill(stream, (1 << 20) if sick else 1000))
got = patient.take(stream)
patient.say(read=got, unacked=patient.unacked(stream))
