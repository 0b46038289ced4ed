# A static binary on distroless, without a shell, as a user that is not root:
#
#     docker build --build-arg VERSION=$(git describe --tags --always) -t relay .
#     docker run -p 15010:15010 -v $PWD/relay.yaml:/etc/relay/relay.yaml:ro relay
#
# Without a file of your own it serves the demo origin.
FROM golang:1.26 AS build
WORKDIR /src
# Modules in a layer of their own, which only go.mod and go.sum change.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/relay ./cmd/relay \
 && cp -r config /out/config \
 && find /out/config -name '*.go' -delete
# The default listens on loopback, where nobody outside the container comes to.
# Not by RELAY_DOWNSTREAM_ADDRESS: that would also win over a file of your own.
# The admin address stays on loopback: elsewhere it needs a token_file.
RUN sed -i 's/^  address: 127\.0\.0\.1:15010/  address: 0.0.0.0:15010/' /out/config/relay.yaml \
 && grep -q '^  address: 0\.0\.0\.0:15010' /out/config/relay.yaml

FROM gcr.io/distroless/static:nonroot
COPY --from=build /out/relay /usr/local/bin/relay
COPY --from=build /out/config /etc/relay
# By number, so that Kubernetes' runAsNonRoot can tell.
USER 65532:65532
EXPOSE 15010 19000
ENTRYPOINT ["/usr/local/bin/relay"]
CMD ["serve", "--config", "/etc/relay/relay.yaml"]
