# One image for every role. The programs are static; the base is a system only
# because the `host` templates show sandboxes the /usr they run on.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ENV CGO_ENABLED=0 GOWORK=off
RUN go build -trimpath -ldflags=-s -o /out/millrace . \
 && go build -trimpath -ldflags='-s -w' -o /tmp/agent ./services/hostd/cmd/millrace-agent \
 && gzip -9 -c /tmp/agent > services/hostd/internal/agentexec/agent.gz \
 && go build -trimpath -ldflags=-s -o /out/millrace-shim ./services/hostd/cmd/millrace-shim \
 && (cd runsc && go build -trimpath -ldflags='-s -w' -o /out/millrace-runsc .) \
 && cd mcpgateway && go build -trimpath -ldflags=-s -o /out/millrace-mcp-gateway .

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates curl git less procps python3-minimal \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir -p /var/lib/millrace
# The shim and gVisor stand beside the program, and what templates have: there they are
# looked for, and nothing can be built here.
COPY --from=build /out/millrace /out/millrace-shim /out/millrace-runsc /out/millrace-mcp-gateway /usr/local/bin/
# The master key seals the secrets in the data directory and lies outside of it: keep both
# volumes.
ENV MILLRACE_DATA=/var/lib/millrace MILLRACE_MASTER_KEY=/etc/millrace/master.key
VOLUME /var/lib/millrace /etc/millrace
EXPOSE 7300
# A role is told to end by SIGTERM, and needs a while to drain.
STOPSIGNAL SIGTERM
ENTRYPOINT ["millrace"]
CMD ["up", "--listen", "0.0.0.0:7300"]
