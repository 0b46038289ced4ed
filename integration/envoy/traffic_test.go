package envoy

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

// request sends one request to a listener and returns the name of the backend
// that answered.
func (e *envoy) request(listener, host, path string) (string, error) {
	address, err := e.listenerAddress(listener)
	if err != nil {
		return "", err
	}
	return answered(send(e.t.Context(), newClient(nil), "http://"+address+path, host, nil))
}

// newClient is a client that opens a connection for each request.
func newClient(trust *tls.Config) *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: trust}}
}

// send sends a GET request and returns the status and the body of the answer.
// An empty host is that of the URL.
func send(ctx context.Context, client *http.Client, url, host string, header http.Header) (code int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	req.Host, req.Header = host, header
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }() // only read from
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		text = fmt.Appendf(text, " (%s)", resp.Header.Get("X-Envoy-Response-Flags"))
	}
	return resp.StatusCode, string(text), err
}

// answered makes an error of each status but 200.
func answered(code int, body string, err error) (string, error) {
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status %d: %s", code, body)
	}
	return body, err
}

// reaches waits until a request to a listener is answered by this backend.
func (e *envoy) reaches(listener, host, path, backend string) {
	e.t.Helper()
	xdstest.Eventually(e.t, fmt.Sprintf("%s: %s%s through %s", e.node, host, path, listener), func() error {
		got, err := e.request(listener, host, path)
		if err == nil && got != backend {
			err = fmt.Errorf("answered by %s, want %s", got, backend)
		}
		return err
	})
}

// traffic is a few clients that send requests to a listener all the time, over
// connections that they keep. No request may fail.
type traffic struct {
	xdstest.Calls
	t      testing.TB
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

// startTraffic begins to send requests to a listener of an Envoy that already
// answers there. It ends with the test, which fails if any request failed.
func startTraffic(e *envoy, listener string) *traffic {
	e.t.Helper()
	return startTrafficInTurn(listener, e)
}

// startTrafficInTurn is startTraffic through several Envoys in turn.
func startTrafficInTurn(listener string, envoys ...*envoy) *traffic {
	t := envoys[0].t
	t.Helper()
	var addresses []string
	for _, e := range envoys {
		address, err := e.listenerAddress(listener)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, address)
	}
	return newTraffic(t, 4, func(ctx context.Context, count func(string, error)) {
		transport := &http.Transport{MaxIdleConnsPerHost: 1}
		defer transport.CloseIdleConnections()
		client := &http.Client{Timeout: 10 * time.Second, Transport: transport}
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			count(answered(send(ctx, client, "http://"+addresses[i%len(addresses)]+"/", "", nil)))
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
}

// newTraffic is traffic of clients that call, each until ctx ends.
func newTraffic(t testing.TB, clients int, call func(ctx context.Context, count func(string, error))) *traffic {
	ctx, cancel := context.WithCancel(context.Background())
	tr := &traffic{t: t, cancel: cancel}
	began := time.Now()
	for range clients {
		tr.wait.Go(func() {
			call(ctx, func(backend string, err error) {
				if err != nil {
					err = fmt.Errorf("after %v: %w", time.Since(began).Round(time.Millisecond), err)
				}
				if ctx.Err() == nil { // else the test is over
					tr.Count(backend, err)
				}
			})
		})
	}
	t.Cleanup(tr.stop)
	return tr
}

// stop ends the traffic and fails the test if a request failed. It may be
// called again.
func (tr *traffic) stop() {
	tr.t.Helper()
	tr.end()
	tr.Check(tr.t)
}

// end stops the traffic. Requests that failed do not fail the test if they are taken.
func (tr *traffic) end() {
	tr.cancel()
	tr.wait.Wait()
}

func (tr *traffic) goesOn() { tr.t.Helper(); tr.GoOn(tr.t) }

func (tr *traffic) reaches(backend string) { tr.t.Helper(); tr.Reach(tr.t, backend) }
