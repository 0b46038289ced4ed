package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// said writes to a connection of HTTP/1, and keeps it until it is closed.
func (a *assault) said(addr, first string, drip string) error {
	c, err := a.connect(addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, first); err != nil {
		return nil
	}
	a.hit(1)
	gone := make(chan struct{})
	go func() { defer close(gone); _, _ = io.Copy(io.Discard, c) }()
	for {
		select {
		case <-gone:
			return nil
		case <-time.After(100 * time.Millisecond):
			if _, err := io.WriteString(c, drip); err != nil {
				_ = c.Close()
				<-gone
				return nil
			}
		}
	}
}

func adminSlow(a *assault) {
	a.each(a.size, func(int) error { return a.said(a.Admin, "GET /keys HTTP/1.1\r\nHost: localhost\r\n", "X-A: b\r\n") })
}

func adminHeaders(a *assault) {
	all := "GET /keys HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X-Header: "+strings.Repeat("v", 100)+"\r\n", 10_000)
	a.each(a.size, func(int) error { return a.said(a.Admin, all, "X-A: b\r\n") })
}

func adminBodies(a *assault) {
	head := "POST /explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"
	a.each(a.size, func(int) error { return a.said(a.Admin, head, " ") })
}

// adminLists reads all that costs by what the relay holds, as fast as it can.
func adminLists(a *assault) {
	paths := []string{"/clients", "/keys", "/keys/honest", "/nacks", "/origins", "/debug/pprof/goroutine?debug=2", "/metrics"}
	tr := &http.Transport{MaxIdleConnsPerHost: a.size}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: 10 * time.Second}
	a.each(a.size, func(i int) error {
		req, err := http.NewRequestWithContext(a.ctx, http.MethodGet, "http://"+a.Admin+paths[i%len(paths)], nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		a.hit(1)
		return resp.Body.Close()
	})
}

const restPath = "/v3/discovery:clusters"

func restBodies(a *assault) {
	head := "POST " + restPath + " HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"
	a.each(a.size, func(int) error { return a.said(a.REST, head, " ") })
}

func restReset(a *assault) {
	a.flood(a.REST, a.size, discards, nil, func(c *h2) int {
		for range 50 {
			_ = c.fr.WriteRSTStream(c.open(restPath, false), http2.ErrCodeCancel)
		}
		return 50
	})
}

// restPolls are of nodes that nobody has seen.
func restPolls(a *assault) {
	tr := &http.Transport{MaxIdleConnsPerHost: a.size}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: 10 * time.Second}
	a.each(a.size, func(i int) error {
		body, err := json.Marshal(map[string]any{"node": map[string]string{"id": fmt.Sprint(i, "-", a.did.Load()), "cluster": honest}})
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(a.ctx, http.MethodPost, "http://"+a.REST+restPath, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		a.hit(1)
		return resp.Body.Close()
	})
}

const csdsPath = "/envoy.service.status.v3.ClientStatusDiscoveryService/"

func operatorsReset(a *assault) {
	a.flood(a.Operators, a.size, discards, nil, func(c *h2) int {
		for range 50 {
			_ = c.fr.WriteRSTStream(c.open(csdsPath+"StreamClientStatus", false), http2.ErrCodeCancel)
		}
		return 50
	})
}

// operatorsSilent are more connections than there may be, which say nothing.
func operatorsSilent(a *assault) {
	a.each(a.size, func(int) error {
		c, err := a.connect(a.Operators)
		if err != nil {
			return err
		}
		a.hit(1)
		_, _ = io.Copy(io.Discard, c) // until it is closed
		return c.Close()
	})
}

// operatorsAll asks for all clients, as fast as it can.
func operatorsAll(a *assault) {
	a.flood(a.Operators, a.size, discards, nil, func(c *h2) int {
		for range 10 {
			id := c.open(csdsPath+"FetchClientStatus", false)
			_ = c.fr.WriteData(id, true, prefix(0, false))
		}
		a.wait(50 * time.Millisecond)
		return 10
	})
}
