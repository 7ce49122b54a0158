# make demo    see a stop as it happens (needs Go only)
# make test    install what is missing (as root on Debian), run everything
# make build   the static binary, ./drainit
# make check   gofmt, go vet, staticcheck

# nethttpomithttp2 leaves HTTP/2 out: the endpoint speaks HTTP/1.1.
BUILD = CGO_ENABLED=0 go build -trimpath -tags nethttpomithttp2 -ldflags '-s -w'
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: build demo test check deps

build:
	$(BUILD) -o drainit .

demo: build
	go build -o dist/demo ./testdata/demo
	./dist/demo -drainit ./drainit

test: check deps
	go test -race -count=1 -timeout 40m $(TESTFLAGS) ./...
	go test -count=1 $(TESTFLAGS) ./supervisor # allocations, and longer sequences of events

check:
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt would change: $$unformatted"; exit 1; }
	go vet ./... ./testdata/demo
	go run $(STATICCHECK) ./... ./testdata/demo

deps:
	sh testdata/install-test-deps.sh
