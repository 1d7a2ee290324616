"""LB104: a receiver that closes when it has heard that the sender is done, while the sender's data are still on
their way. What comes after the close is answered by a reset, and the sender, all of whose writes
succeeded, has lost it. Mended: reads to the end of the stream."""

import patient

sick = patient.is_sick()
stream = patient.reach()
got = patient.take(stream, 100000)
if sick:
    stream.close()
    patient.say(written=0)
    patient.time.sleep(0.6)  # the program goes on with other work
else:
    patient.say(written=0)
    got += patient.finish(stream)
patient.say(read=got)
