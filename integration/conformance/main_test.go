// Package conformance tests the built relay against the rules of the protocol, between a scripted
// origin and scripted clients. It uses no code of the relay. docs/conformance.md lists the rules
// and their tests.
//
// A few relays serve all tests, and every test has its own key, because starting a relay is slow
// and a new key is fast. No test waits for time to pass to check that nothing arrives. Instead it
// uses a fence: a subscription made later, whose answer would arrive after the unwanted response.
//
// RELAY_RACE builds the relay with the race detector.
package conformance

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests wait for messages, not for a processor.
	if err := flag.Set("test.parallel", "24"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(xdstest.Main(atOrigin{m}))
}

// atOrigin runs the tests, and then stops their shared origins.
type atOrigin struct{ tests *testing.M }

// Run implements the interface that xdstest.Main needs.
func (a atOrigin) Run() int {
	dir, err := os.MkdirTemp("", "origins-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	originsDir = dir
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	code := a.tests.Run()
	if c, err := sharedControl(); err == nil {
		c.stop()
	}
	if err := endLibraries(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
