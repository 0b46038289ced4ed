// Package conformance judges the built relay by the rules of the protocol: a
// scripted origin on one side of it, scripted clients on the other, and what
// each of them sees. Nothing here knows the relay's code. The rules and
// their tests are in docs/conformance.md.
//
// A few relays serve all tests, and every test has a key of its own: a relay
// takes long to start, a key does not. Nothing waits for time to pass in order
// to see that nothing came: a fence is something else, asked for later, whose
// answer would have come after it.
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

// atOrigin runs the tests, and then stops the origin that they share.
type atOrigin struct{ tests *testing.M }

// Run implements the interface that xdstest.Main needs.
func (a atOrigin) Run() int {
	code := a.tests.Run()
	if c, err := sharedControl(); err == nil {
		c.stop()
	}
	return code
}
