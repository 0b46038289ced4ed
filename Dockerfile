# The container image of the relay: a static binary on distroless, without a shell, not as root.
#
#     make image
#     docker run --rm -p 15010:15010 -v $PWD/relay.yaml:/etc/relay/relay.yaml:ro relay
#
# Without a mounted relay.yaml the relay serves the demo origin. BUILDER and BASE name other images to
# build from, such as those of a mirror.
ARG BUILDER=golang:1.26
ARG BASE=gcr.io/distroless/static:nonroot
FROM ${BUILDER} AS build
WORKDIR /src
# Only go.mod and go.sum change the layer of the modules.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/relay ./cmd/relay \
 && cp -r config /out/config \
 && rm /out/config/*.go \
 && mkdir /out/store
# The default address is on loopback, which clients outside the container cannot reach. This changes
# the file, because RELAY_DOWNSTREAM_ADDRESS would also override a mounted file. The admin address
# stays on loopback, because any other address needs a token_file.
RUN sed -i 's/^  address: 127\.0\.0\.1:15010/  address: 0.0.0.0:15010/' /out/config/relay.yaml \
 && grep -q '^  address: 0\.0\.0\.0:15010' /out/config/relay.yaml

FROM ${BASE}
COPY --from=build /out/relay /usr/local/bin/relay
COPY --from=build /out/config /etc/relay
# For store.path.
COPY --from=build --chown=65532:65532 /out/store /var/lib/relay
# A number, because runAsNonRoot in Kubernetes cannot check a name.
USER 65532:65532
EXPOSE 15010 19000
# Kubernetes ignores this and has probes. /ready says whether the relay serves clients.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["/usr/local/bin/relay", "health", "--config", "/etc/relay/relay.yaml"]
ENTRYPOINT ["/usr/local/bin/relay"]
CMD ["serve", "--config", "/etc/relay/relay.yaml"]
