package nonce

import (
	"testing"

	"go.uber.org/goleak"
)

func TestP10_Nonces(t *testing.T) {
	a, b := New(7, 1), New(7, 2)
	seen := map[string]bool{}
	for i := range uint64(2000) {
		seq := a.Reserve(1)
		n := a.Append(nil, seq)
		if seen[string(n)] || seq != i+1 || a.Number(n) != seq {
			t.Fatalf("nonce %q is number %d, repeated %v", n, a.Number(n), seen[string(n)])
		}
		seen[string(n)] = true
		m := b.Append(nil, b.Reserve(1))
		if a.Number(m) != 0 || b.Number(n) != 0 {
			t.Fatalf("%q and %q: a nonce of the other stream is known", n, m)
		}
	}
	for _, bad := range []string{"", "1", string(a.prefix[:]), string(a.prefix[:]) + "zzzz", string(a.prefix[:]) + "!"} {
		if a.Number([]byte(bad)) != 0 {
			t.Fatalf("%q is known", bad)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
