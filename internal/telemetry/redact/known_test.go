package redact

import (
	"crypto/sha256"
	"fmt"
	"testing"
)

// A long text is looked at once: the second time, what became of it is taken.
func TestLongTextsAreLookedAtOnce(t *testing.T) {
	first := Text(quoting)
	sum := sha256.Sum256([]byte(quoting))
	if out, ok := known.Get(sum); !ok || out != first {
		t.Fatalf("what became of it is not known: %q", out)
	}
	known.Add(sum, "as before")
	defer known.Remove(sum)
	if out := Text(quoting); out != "as before" {
		t.Errorf("it was looked at again: %q", out)
	}
	for i := range 4 * maxKnown {
		_ = Text(fmt.Sprint(i, quoting))
	}
	if n := known.Len(); n > maxKnown {
		t.Errorf("%d texts are known", n)
	}
}
