"""Calls grpc.health.v1.Health/Check once at each of COUNT xDS targets.

Usage: targets.py PREFIX COUNT, with a bootstrap in GRPC_XDS_BOOTSTRAP.

The targets are xds:///PREFIX-0, xds:///PREFIX-1 and so on. Each has a channel,
and all channels are open at the same time. For each target the script prints
"answer TARGET", or "error TARGET CODE DETAILS".
"""

import sys

import grpc


def main(prefix, count):
    # Messages stay bytes. The empty request is an empty HealthCheckRequest.
    same = lambda message: message
    targets = [f"{prefix}-{i}" for i in range(count)]
    channels = [grpc.insecure_channel("xds:///" + target) for target in targets]
    calls = [
        channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=same,
            response_deserializer=same,
        ).future(b"", timeout=20)
        for channel in channels
    ]
    for target, call in zip(targets, calls):
        try:
            call.result()
            print("answer", target, flush=True)
        except grpc.RpcError as e:
            print("error", target, e.code().name, e.details(), flush=True)


main(sys.argv[1], int(sys.argv[2]))
