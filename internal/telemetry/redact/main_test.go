package redact

import (
	"testing"

	"go.uber.org/goleak"

	_ "xdsrelay/internal/anytypes" // what is opened
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// marker is what must not be shown. It is neither long nor mixed, so that nothing
// but its place betrays it.
const marker = "thekeythatnobodymaysee"
