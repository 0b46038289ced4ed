"""Calls grpc.health.v1.Health/Check at xds:///SERVICE until it is killed.

Usage: caller.py SERVICE, with a bootstrap in GRPC_XDS_BOOTSTRAP.

Each call prints a line: "answer BACKEND" with the header that the backend
sent, or "error CODE DETAILS". The first call waits until the channel is ready.
Later calls fail at once if gRPC has no endpoint for them.
"""

import sys
import time

import grpc


def main(service):
    # Messages stay bytes. The empty request is an empty HealthCheckRequest.
    same = lambda message: message
    with grpc.insecure_channel("xds:///" + service) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=same,
            response_deserializer=same,
        )
        ready = False
        while True:
            try:
                _, call = check.with_call(b"", timeout=20, wait_for_ready=not ready)
                ready = True
                headers = dict(call.initial_metadata())
                print("answer", headers.get("backend"), flush=True)
            except grpc.RpcError as e:
                print("error", e.code().name, e.details(), flush=True)
            time.sleep(0.005)


main(sys.argv[1])
