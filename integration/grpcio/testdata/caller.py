"""Calls grpc.health.v1.Health/Check at xds:///SERVICE until it is killed.

Usage: caller.py SERVICE, with a bootstrap in GRPC_XDS_BOOTSTRAP.

Each call prints a line: "answer BACKEND" with the header that the backend
sent, or "error CODE DETAILS". Calls before the first answer wait until the
channel is ready, and print "waiting CODE" if it is not within a second. Later
calls fail at once if gRPC has no endpoint for them.
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
                # A call that waits for ready and began before the control plane failed
                # ends only at its deadline (grpcio 1.85, also without a relay).
                timeout = 20 if ready else 1
                _, call = check.with_call(b"", timeout=timeout, wait_for_ready=not ready)
                ready = True
                headers = dict(call.initial_metadata())
                print("answer", headers.get("backend"), flush=True)
            except grpc.RpcError as e:
                kind = "error" if ready else "waiting"
                print(kind, e.code().name, e.details(), flush=True)
            time.sleep(0.005)


main(sys.argv[1])
