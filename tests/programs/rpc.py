"""gRPC without generated code, messages being bytes: `serve` sends back what it gets; `ask HOST:PORT`
makes calls and compares.

Small calls, one of 1 MiB, and a stream of 1,000 messages both ways.
"""

import concurrent.futures
import os
import sys
import threading

import grpc

CALL, STREAM = "/bytes.Echo/Call", "/bytes.Echo/Stream"


def serve():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    handlers = {
        "Call": grpc.unary_unary_rpc_method_handler(lambda message, _: message),
        "Stream": grpc.stream_stream_rpc_method_handler(lambda messages, _: messages),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("bytes.Echo", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print("listening on 127.0.0.1:%d" % port, flush=True)
    threading.Event().wait()


def ask(address):
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        call, stream = channel.unary_unary(CALL), channel.stream_stream(STREAM)
        for size in [0, 1, 100, 1 << 20] + [10] * 500:
            message = os.urandom(size)
            assert call(message, timeout=30) == message, size
        messages = [os.urandom(number * 17 % 4096) for number in range(1000)]
        assert list(stream(iter(messages), timeout=60)) == messages
    print("all as it should be")


serve() if sys.argv[1] == "serve" else ask(sys.argv[2])
