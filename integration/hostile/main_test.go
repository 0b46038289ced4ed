package hostile

import (
	"os"
	"testing"

	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(attackVariable); name != "" {
		os.Exit(attackMain(name))
	}
	os.Exit(xdstest.Main(m))
}

// full reports whether this is the long form.
func full() bool { return os.Getenv("HOSTILE") == "full" }
