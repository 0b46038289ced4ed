package session

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// The model plays the histories of one seed, so that its result depends on the code alone.
// With -rapid.checks, as in make model, or -rapid.seed it plays others.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" || f.Name == "rapid.seed" })
	if !given {
		if err := flag.Set("rapid.seed", "1"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
