# Stands in for golang:1.26, which cannot be pulled everywhere: the machine's own Go, and the modules go.sum names.
# The warm-up keeps the later builds from compiling the standard library each time.
ARG BASE
FROM ${BASE}
COPY go /usr/local/go
COPY modules /modules
ENV PATH=/usr/local/go/bin:/usr/bin:/bin GOPATH=/go GOTOOLCHAIN=local GOPROXY=file:///modules GOSUMDB=off
RUN CGO_ENABLED=0 go build -trimpath -tags nethttpomithttp2 net/http encoding/json log/slog
