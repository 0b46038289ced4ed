package redact

import (
	"testing"

	"go.uber.org/goleak"

	_ "xdsrelay/internal/anytypes" // links the messages that are opened
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// marker must not be shown. It is short and looks like no secret, so that only its place makes it
// one.
const marker = "thekeythatnobodymaysee"
