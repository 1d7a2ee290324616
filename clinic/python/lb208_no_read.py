"""LB208: the receiver's program does not read: 16 KiB, then a pause of 50 ms. Its window is closed most of the time,
and the sender is blamed for being slow. Mended: reads what is there."""

import patient

sick = patient.is_sick()
stream = patient.reach()
start = patient.now()
got = 0
while data := stream.recv(16384):
    got += len(data)
    if sick:
        patient.time.sleep(0.05)
patient.say(written=0, read=got, seconds=patient.now() - start)
patient.finish(stream)
