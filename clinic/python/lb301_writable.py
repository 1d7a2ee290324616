"""LB301: an event loop that asks for EVENT_WRITE all the time, though it has nothing to write. select() returns at
once, every time. Mended: asks for EVENT_READ alone."""

import selectors

import patient

sick = patient.is_sick()
stream = patient.reach()
stream.sendall(bytes(100))
patient.say(written=100)
selector = selectors.DefaultSelector()
selector.register(stream, selectors.EVENT_READ | (selectors.EVENT_WRITE if sick else 0))
calls = 0
readable = False
while not readable:
    readable = any(mask & selectors.EVENT_READ for _, mask in selector.select())
    calls += 1
patient.say(read=patient.finish(stream), calls=calls)
