package xdstest

import (
	"flag"
	"fmt"
	"os"

	"go.uber.org/goleak"
)

// Main is the body of TestMain of a package that runs the relay's binary. It
// returns the exit code, and fails if a test leaves a goroutine behind. m is a
// *testing.M, or runs one. Without -parallel, six tests run at a time: they mostly wait for
// processes, not for the CPU.
func Main(m interface{ Run() int }) int {
	dir, err := os.MkdirTemp("", "relay-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	buildDir = dir
	// Relays report unknown variables that begin with RELAY_.
	givenBinary = os.Getenv("RELAY_BINARY")
	_ = os.Unsetenv("RELAY_BINARY") // the name is valid
	if !flag.Parsed() {
		flag.Parse()
	}
	if chosen := flag.Lookup("test.parallel"); chosen.Value.String() == chosen.DefValue {
		_ = flag.Set("test.parallel", "6") // a number is valid
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	code := m.Run()
	if err := endShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
		return 1
	}
	return 0
}
