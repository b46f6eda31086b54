
# One static binary on an empty image: no shell, no package, no root.
# Pin both by digest where builds have to be repeatable to the byte.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS TARGETARCH
ARG VERSION=dev COMMIT=unknown DATE=
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -gcflags='github.com/aws/...=-l' -gcflags='google.golang.org/protobuf/...=-l' \
    -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT -X main.date=$DATE" \
    -o /out/cdc-relay ./cmd/cdc-relay
# For programs that look their user up; the image has no other.
RUN echo 'relay:x:65532:65532:cdc-relay:/:/nonexistent' > /out/passwd

FROM scratch
LABEL org.opencontainers.image.title="cdc-relay" \
      org.opencontainers.image.description="Streams PostgreSQL outbox tables to Kafka" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/passwd /etc/passwd
COPY --from=build /out/cdc-relay /cdc-relay
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=20s --retries=3 CMD ["/cdc-relay", "healthcheck"]
ENTRYPOINT ["/cdc-relay"]
CMD ["run"]
